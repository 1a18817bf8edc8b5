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
        message: str,
        code: str | None = None,
        param: str | None = None,
        *,
        status: int = 400,
        type: str = "invalid_request_error",  # noqa: A002 - Stripe's name for it
        executed: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.executed = executed
        named = {"code": code, "param": param, **more}
        self.error: dict[str, Any] = {"type": type, "message": message}
        self.error |= {name: value for name, value in sorted(named.items()) if value is not None}


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
                message = f"The parameter {name} is no longer supported."
                raise EmulatedError(message, f"{name}_no_longer_supported", name)
            if name not in names:
                raise EmulatedError(f"Received unknown parameter: {name}", "parameter_unknown", name)

    def required(self, name: str) -> str:
        """Return a parameter, or refuse the request that lacks it."""
        if not self.form.get(name):
            raise EmulatedError(f"Missing required param: {name}.", "parameter_missing", name)
        return self.form[name]

    def amount(self) -> int:
        """Return the amount in minor units; refuse what is no positive integer."""
        sent = self.required("amount")
        good = sent.isascii() and sent.isdigit() and len(sent) < 20 and int(sent) > 0
        if not good:
            message = f"Invalid positive integer: {sent}"
            raise EmulatedError(message, "parameter_invalid_integer", "amount")
        if int(sent) > MAXIMUM:
            message = "Amount must be no more than $999,999.99"
            raise EmulatedError(message, "amount_too_large", "amount")
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
