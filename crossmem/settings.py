"""The parameters of a run: names, types, defaults, checks. Notebooks, Python and tests share them."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from crossmem import streams
from crossmem.agents import models
from crossmem.agents.cost import Meter
from crossmem.agents.prompts import HintStyle
from crossmem.api.payments.access import KEY_VARIABLE, StripeAccess, stripe_access
from crossmem.domains.base import Keying
from crossmem.errors import InputError, unknown
from crossmem.memory.arms import Arm, arms
from crossmem.rooms import Shelf
from crossmem.run.results import find
from crossmem.streams import BudgetStep

if TYPE_CHECKING:
    from crossmem.upstream.checkout import Checkout

MODEL_VARIABLE = "PILOT_MODEL"
DEFAULT_MODEL = "haiku"
EMBEDDED = "embedded"


class Given(BaseModel):
    """What a notebook takes. Strings are as typed on a command line and are read by the validators."""

    model_config = ConfigDict(extra="forbid", validate_default=True, coerce_numbers_to_str=True)

    def check(self) -> None:
        """Raise InputError where the parameters do not go together or name what is not there."""


class Parameters(Given):
    """What every phase takes."""

    phase: ClassVar[str]
    with_oracle: ClassVar[bool] = False
    """Whether the oracle is replayed beside the arms, for regret to be read off."""

    model: str = ""
    gguf: str = ""
    mock: bool = False
    arms: str = "A0,A1,A2,A3,LW,LWG"
    hint_style: HintStyle = "amendment"
    keying: Keying = "task"
    budget: str = ""
    replicates: int = Field(1, ge=1)
    seed: int = 0
    max_attempts: int = Field(5, ge=1)
    api: str = EMBEDDED
    api_python: str = ""
    strict_checkout: bool = False
    strict_preflight: bool = False
    max_concurrency: int = Field(8, ge=1)
    episode_timeout_s: float = Field(300.0, gt=0)
    max_tokens_total: int = Field(0, ge=0)
    max_cost_usd: float = Field(0.0, ge=0)
    results: str = ""
    resume: bool = False

    @property
    def stream_name(self) -> str:
        """The name of the stream to replay."""
        raise NotImplementedError

    def chosen(self) -> list[Arm]:
        """Return the arms to replay."""
        return arms(self.arms)

    @field_validator("model")
    @classmethod
    def _default_model(cls, value: str) -> str:
        return value or os.environ.get(MODEL_VARIABLE) or DEFAULT_MODEL

    @field_validator("arms")
    @classmethod
    def _known_arms(cls, value: str) -> str:
        return ",".join(arm.name for arm in arms(value))

    @field_validator("budget")
    @classmethod
    def _readable_budget(cls, value: str) -> str:
        budget_steps(value)
        return value

    def check(self) -> None:
        """Raise InputError where the parameters do not go together or name what is not there."""
        streams.load(self.stream_name)
        if self.results:
            find(self.results, self.phase, self.stream_name)
        else:
            models.check(self)
            self.meter()
            self.checkout()

    def material(self) -> dict[str, Any]:
        """Return what a run takes from files beside its stream, for its config."""
        return {}

    def restore(self, material: Mapping[str, Any]) -> None:
        """Take what a config kept in place of the files."""

    def stripe_access(self) -> StripeAccess | None:
        """Return how the API reaches Stripe; None for the embedded emulator, or no Stripe at all."""
        return None

    def checkout(self) -> Checkout | None:
        """Return the checkout that stands in for the embedded API, None for the embedded one.

        Raises InputError where it cannot be used by these parameters.
        """
        if self.api == EMBEDDED:
            return None
        from crossmem.upstream.checkout import open_checkout

        stream = streams.load(self.stream_name)
        found = open_checkout(
            self.api, self.phase, stream, self.api_python, strict=self.strict_checkout
        )
        needy = [arm.name for arm in self.chosen() if arm.signal == "versions"]
        if needy and found.profile.paths.versions is None:
            raise InputError(
                f"arms: {needy[0]} reads the API's versions, and the checkout has no endpoint for them "
                "(`versions` under [paths] in its profile)"
            )
        return found

    def meter(self) -> Meter:
        """Return the meter of a run of these parameters."""
        return Meter(models.full_name(self.model), self.max_tokens_total, self.max_cost_usd)


class Phase1(Parameters):
    """Phase 1: one drift, lessons keyed by the failing request as the first runs had it."""

    phase: ClassVar[str] = "phase1"

    keying: Keying = "request"

    @property
    def stream_name(self) -> str:
        """Phase 1 has one stream."""
        return "phase1"


class Phase2(Parameters):
    """Phase 2: one drift pattern, and what the granularity of invalidation is worth under it."""

    phase: ClassVar[str] = "phase2"
    with_oracle: ClassVar[bool] = True

    pattern: Literal["v2", "v4", "churn", "silent", "rollback"] = "v2"
    arms: str = "A0,A1,A2,A2D,A3,LW,LWG"

    @property
    def stream_name(self) -> str:
        """The stream of the pattern."""
        return f"phase2_{self.pattern}" if self.pattern in {"v2", "v4"} else self.pattern


class Phase3(Parameters):
    """Phase 3: four drifts that walk the table through every snapshot."""

    phase: ClassVar[str] = "phase3"
    with_oracle: ClassVar[bool] = True

    pattern: Literal["m1"] = "m1"
    arms: str = "A0,A1,A2,A2D,LW,LWG"

    @property
    def stream_name(self) -> str:
        """The stream of the pattern."""
        return f"phase3_{self.pattern}"


class StaleAttempts(Given):
    """The slot explorer: which slot it opens with."""

    results: str = "latest"
    epoch: int = Field(1, ge=1)
    arm: str = "A2"


class Compare(Given):
    """The comparison: at least two results files, comma-separated."""

    results: str = ""

    @property
    def files(self) -> list[str]:
        """The results files named."""
        return [name for name in map(str.strip, self.results.split(",")) if name]

    def check(self) -> None:
        """Raise InputError for fewer than two files."""
        if len(self.files) < 2:
            raise InputError(
                f"results {self.results!r}: name at least two results files, comma-separated, "
                "such as the ones that two runs of Phase 2 printed last"
            )


class AcmeBilling(Parameters):
    """The second domain: billing, whose csm codes rotate."""

    phase: ClassVar[str] = "acme"
    with_oracle: ClassVar[bool] = True

    stream: Literal["acme_m1", "acme_sanity", "acme_refunds"] = "acme_m1"
    stripe: Literal["embedded", "test"] = "embedded"
    keying: Literal["task"] = "task"
    arms: str = "A0,A1,A2,A2D,LW,LWG"

    @property
    def stream_name(self) -> str:
        """The stream asked for."""
        return self.stream

    def check(self) -> None:
        """Raise InputError for a key that is not a test-mode key, besides what holds everywhere."""
        super().check()
        if self.results:
            return
        if self.api != EMBEDDED:  # its app takes the key from the environment, whatever `stripe` says
            stripe_access("test" if os.environ.get(KEY_VARIABLE) else "embedded")
        elif self.stripe_access() is None and os.environ.get(KEY_VARIABLE):
            warnings.warn(f"{KEY_VARIABLE} is set and ignored: stripe is {self.stripe}", stacklevel=2)

    def stripe_access(self) -> StripeAccess | None:
        """Return the access to Stripe's test mode, or None for the embedded emulator."""
        return stripe_access(self.stripe)


_HERE = {each.phase: each for each in (Phase1, Phase2, Phase3, AcmeBilling)}
_ELSEWHERE = {"experience": "crossmem.experience.parameters:Experience"}
_OTHERS: dict[str, type[Given]] = {"stale_attempts": StaleAttempts, "compare": Compare}
PHASES: Mapping[str, type[Parameters]] = Shelf(_HERE, _ELSEWHERE)
NOTEBOOKS: Mapping[str, type[Given]] = Shelf({**_HERE, **_OTHERS}, _ELSEWHERE)


def read(phase: str, given: Mapping[str, Any]) -> Parameters:
    """Return the checked parameters of `phase`; raises InputError as `read_for` does."""
    if phase not in PHASES:
        raise unknown("phase", phase, PHASES)
    return cast("Parameters", read_for(phase, given))


def read_for(notebook: str, given: Mapping[str, Any]) -> Given:
    """Return the checked parameters of a notebook.

    Raises InputError naming the first parameter that is unknown, ill-typed or out of range.
    """
    if notebook not in NOTEBOOKS:
        raise unknown("notebook", notebook, NOTEBOOKS)
    schema = NOTEBOOKS[notebook]
    for name in given:
        if name not in schema.model_fields:
            raise unknown("parameter", name, schema.model_fields)
    try:
        parameters = schema(**given)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"parameter {first['loc'][0]} = {first['input']!r}"
        raise InputError(f"{where}: {first['msg']}") from None
    parameters.check()
    return parameters


def guard(notebook: str, namespace: Mapping[str, Any]) -> Given:
    """Return the checked parameters found in a notebook's `namespace` (its `globals()`).

    Papermill only warns of a misspelt parameter and runs with the default; here every name that the
    notebook holds at this point and that is no parameter stops it. Raises InputError.
    """
    return read_for(
        notebook, {name: value for name, value in namespace.items() if _is_parameter(name, value)}
    )


def _is_parameter(name: str, value: object) -> bool:
    shell = {"In", "Out", "exit", "quit", "get_ipython", "open"}
    return not name.startswith("_") and name not in shell and not inspect.ismodule(value)


def budget_steps(text: str) -> list[BudgetStep]:
    """Read a budget schedule: `6:420,14:none` (from episode 6 on 420 bytes, from 14 on unlimited).

    A plain number holds from the start; the empty string means the stream's own schedule. Raises
    InputError for anything else.

    >>> [(step.before, step.bytes) for step in budget_steps("6:420,14:none")]
    [(6, 420), (14, None)]
    """
    steps = []
    for part in filter(None, map(str.strip, text.split(","))):
        before, _, limit = part.rpartition(":")
        try:
            size = None if limit.strip().lower() == "none" else int(limit)
            steps.append(BudgetStep(before=int(before or 0), bytes=size))
        except ValueError:
            raise InputError(
                f"budget {text!r}: cannot read {part!r}; write episode:bytes steps such as "
                "6:420,14:none, or one number of bytes"
            ) from None
    return steps
