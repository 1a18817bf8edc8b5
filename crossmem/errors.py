"""What can go wrong in a way a person should read: one line, no traceback."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class CrossmemError(Exception):
    """A failure with a message for people; the command line and the notebooks show it as is."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of a stack of frames."""
        return [f"{type(self).__name__}: {self}"]


class InputError(CrossmemError):
    """A parameter, name or file that the study cannot use; said before any work starts."""


def unknown(thing: str, value: object, choices: Iterable[str]) -> InputError:
    """Return the error for a `value` that is none of the `choices`, with the nearest one named.

    >>> print(unknown("arm", "A9", ["A0", "A1F"]))
    unknown arm 'A9'; did you mean 'A1F'? Choices: A0, A1F
    """
    names = list(choices)
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f" did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names)
    return InputError(f"unknown {thing} {value!r};{hint} Choices: {listed}")
