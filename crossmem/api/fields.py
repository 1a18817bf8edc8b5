"""Types of request fields that more than one domain uses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# The limit keeps what is echoed in an answer, or passed on to Stripe, at a length that fits.
Text = Annotated[str, Field(min_length=1, max_length=200)]


class RequestPart(BaseModel):
    """A part of a request: a field that it does not name is an error, not ignored."""

    model_config = ConfigDict(extra="forbid")


def whole(value: object) -> object:
    """Return 4.0 as 4: JSON has one kind of number, and JSON Schema calls 4.0 an integer.

    As a `BeforeValidator` it stands last in an `Annotated`: before the limits, it would hide them
    from the OpenAPI document.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value
