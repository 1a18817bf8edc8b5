"""A request to the Stripe emulator, read as Stripe reads it, and Stripe's error answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Stripe's limit for a charge, in minor units.
MAXIMUM = 99_999_999


class EmulatedError(Exception):
    """An error answer of Stripe; `executed` tells that an idempotency key keeps it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",  # noqa: A002 - Stripe's name for it
        executed: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.executed = executed
        self.error: dict[str, Any] = {"type": type, "message": message}
        self.error |= {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class Call:
    """A request: path parameters, the form or query as sent, and the ending of the ids it makes."""

    path: Mapping[str, str]
    form: Mapping[str, str]
    seed: str

    def known(self, names: frozenset[str]) -> None:
        """Refuse a parameter that is none of `names`."""
        for sent in self.form:
            name = sent.partition("[")[0]
            if name == "payment_method_types":
                raise EmulatedError(
                    400,
                    "The parameter payment_method_types is no longer supported.",
                    code="payment_method_types_no_longer_supported",
                    param=name,
                )
            if name not in names:
                raise EmulatedError(
                    400,
                    f"Received unknown parameter: {name}",
                    code="parameter_unknown",
                    param=name,
                )

    def required(self, name: str) -> str:
        """Return a parameter, or refuse the request that lacks it."""
        if not self.form.get(name):
            raise EmulatedError(
                400, f"Missing required param: {name}.", code="parameter_missing", param=name
            )
        return self.form[name]

    def amount(self) -> int:
        """Return the amount in minor units; refuse what is no positive integer."""
        sent = self.required("amount")
        good = sent.isascii() and sent.isdigit() and len(sent) < 20 and int(sent) > 0
        if not good:
            raise EmulatedError(
                400,
                f"Invalid positive integer: {sent}",
                code="parameter_invalid_integer",
                param="amount",
            )
        if int(sent) > MAXIMUM:
            raise EmulatedError(
                400, "Amount must be no more than $999,999.99", code="amount_too_large", param="amount"
            )
        return int(sent)

    def metadata(self) -> dict[str, str]:
        """Return the `metadata[name]` parameters."""
        return {
            name.removeprefix("metadata[").removesuffix("]"): value
            for name, value in self.form.items()
            if name.startswith("metadata[")
        }

    def expanded(self) -> list[str]:
        """Return what the response is to hold in full instead of as an id."""
        return [value for name, value in self.form.items() if name.startswith("expand[")]
