"""The parameters of the experience study: which arms, in which variants, under which governance."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Literal

from pydantic import field_validator

from crossmem.errors import unknown
from crossmem.experience.arms import COMPONENTS, GOVERNED, TABLE, VARIANTS
from crossmem.memory.arms import Arm, arms
from crossmem.parameters import Parameters


class Experience(Parameters):
    """Experience memories beside the core's arms, on one stream.

    `arms` names arms of the table, or components (`simple`, `cards`, `rich`, `skills`): each of these
    stands for its arms in the chosen `variant` and `governed`, comma-separated lists of their own.
    """

    phase: ClassVar[str] = "experience"
    with_oracle: ClassVar[bool] = True

    stream: Literal["experience_m1", "phase3_m1", "phase2_v4", "rollback", "acme_m1"] = "experience_m1"
    arms: str = "A0,A1,A2,A2D,A3,A3C,LWG,simple,cards,rich,skills"
    variant: str = "faithful,fixed"
    governed: str = "none,A2,A2D"
    keying: Literal["task"] = "task"

    @field_validator("arms")
    @classmethod
    def _known_arms(cls, value: str) -> str:
        return _all_of("arm", value, [*COMPONENTS, *TABLE])

    @field_validator("variant")
    @classmethod
    def _known_variants(cls, value: str) -> str:
        return _all_of("variant", value, VARIANTS)

    @field_validator("governed")
    @classmethod
    def _known_governance(cls, value: str) -> str:
        return _all_of("governance", value, GOVERNED)

    def chosen(self) -> list[Arm]:
        """Return the arms to replay, components expanded. Raises InputError where one comes twice."""
        return arms([name for each in _names(self.arms) for name in self._expanded(each)], TABLE)

    def _expanded(self, name: str) -> list[str]:
        if name not in COMPONENTS:
            return [name]
        pairs = [(v, g) for v in _names(self.variant) for g in _names(self.governed)]
        return [".".join([name, v, *([] if g == "none" else [g])]) for v, g in pairs]

    @property
    def stream_name(self) -> str:
        """The stream asked for."""
        return self.stream

    def check(self) -> None:
        """Raise InputError where arms repeat, besides what holds everywhere."""
        self.chosen()
        super().check()


def _names(value: str) -> list[str]:
    return [name for name in map(str.strip, value.split(",")) if name]


def _all_of(what: str, value: str, choices: Collection[str]) -> str:
    names = _names(value)
    for name in names or [value]:
        if name not in choices:
            raise unknown(what, name, choices)
    return ",".join(names)
