"""The settings of a run: names, types, defaults, meanings, for notebooks, command line and Python.

Reading settings opens no file and asks no server: whether a model can be reached or a checkout used is
found out by `study.py`, before a run starts.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from crossmem.domains.base import Keying
from crossmem.errors import InputError, unknown
from crossmem.memory.arms import ARMS, REFERENCES, Arm, arms
from crossmem.streams import BudgetStep, Stream
from crossmem.streams.plans import patterns

MODEL_VARIABLE = "PILOT_MODEL"
DEFAULT_MODEL = "haiku"
EMBEDDED = "embedded"

HintStyle = Literal["append", "amendment"]
KNOWN = {**ARMS, **REFERENCES}
"""What a phase can replay, by name."""

EXECUTION_FIELDS = frozenset(
    "results resume strict_preflight strict_checkout max_concurrency episode_timeout_s "
    "max_tokens_total max_cost_usd".split()
)
"""Settings that say how a run is carried out, not what it is; a resume may change them."""


class Settings(BaseModel):
    """What a notebook takes. Strings are as typed on a command line and are read by the validators.

    The string under a field is its meaning, wherever the field is listed or offered.
    """

    model_config = ConfigDict(
        extra="forbid",
        validate_default=True,
        coerce_numbers_to_str=True,
        use_attribute_docstrings=True,
    )

    notebook: ClassVar[str]
    """The notebook that takes them."""


class RunSettings(Settings):
    """What every phase takes."""

    brief_arms: ClassVar[str] = "A0,A1,A2,A2D"
    """The arms of the brief, replayed where none are asked for."""
    domains: ClassVar[tuple[str, ...]] = ("recipe",)
    """The domains whose streams the phase can replay."""
    own_stream: ClassVar[str]
    """The stream that it replays unless another is named."""
    baselines: ClassVar[str] = "A1F,LW,LWG"
    """Replayed beside them in mock, where that is free, with the reference lines."""

    model: str = ""
    """haiku | sonnet | local | openai/<id> | any id; empty: PILOT_MODEL, else haiku"""
    gguf: str = ""
    """with the model local: another model file than the one installed"""
    mock: bool = False
    """True: the scripted agent, no language model"""
    arms: str = ""
    """comma-separated, exactly these; empty: the brief's, with mock the baselines beside"""
    stream: str = ""
    """a stream's name, or a file that passes the audit; empty: the phase's own"""
    hint_style: HintStyle = "amendment"
    """wording of the memory block: amendment | append"""
    keying: Keying = "task"
    """term a brand lesson is keyed under: task | request"""
    budget: str = ""
    """A3's byte budget, e.g. 6:420,14:none; empty: as the stream has it"""
    replicates: int = Field(1, ge=1)
    """runs of the whole stream per arm"""
    seed: int = 0
    """varies nothing with the scripted agent"""
    max_attempts: int = Field(5, ge=1)
    """requests per episode, the first included"""
    api: str = EMBEDDED
    """embedded, or the path of a checkout of the API repository"""
    api_python: str = ""
    """with a checkout: the Python to run it; empty: this one"""
    strict_checkout: bool = False
    """True: a checkout at another branch or tag than expected is an error"""
    strict_preflight: bool = False
    """True: a doubtful preflight stops a live run"""
    max_concurrency: int = Field(8, ge=1)
    """live arms and replicates at once"""
    episode_timeout_s: float = Field(300.0, gt=0)
    """seconds; a later episode counts as the provider's failure"""
    max_tokens_total: int = Field(0, ge=0)
    """a live run stops, resumable, once it has spent these; 0: no limit"""
    max_cost_usd: float = Field(0.0, ge=0)
    """likewise in US dollars"""
    results: str = ""
    """a results file to analyse instead of running; latest: the newest that fits"""
    resume: bool = False
    """True: continue the unfinished run of these parameters"""

    _given: frozenset[str] = PrivateAttr(frozenset())

    def given(self) -> frozenset[str]:
        """Return the names of the settings that were asked for: those given that are no default."""
        return self._given

    def note_given(self, given: Mapping[str, Any]) -> None:
        """Keep which of the `given` values are not the default of their setting."""
        fields = type(self).model_fields
        self._given = frozenset(n for n, value in given.items() if value != fields[n].default)

    @property
    def phase(self) -> str:
        """The phase, which has the name of its notebook."""
        return self.notebook

    @property
    def stream_name(self) -> str:
        """The name or file of the stream to replay."""
        return self.stream or self.own_stream

    def arms_to_run(self) -> list[Arm]:
        """Return what is replayed, in order: the arms asked for and the reference lines among them."""
        return arms(self.arms, KNOWN)

    def arm_inputs(self) -> dict[str, Any]:
        """Return what arms take from files beside the stream, for the config of a run."""
        return {}

    def check_inputs(self, stream: Stream) -> None:
        """Raise InputError where what `arm_inputs` holds serves no task of `stream`."""

    def budget_steps(self) -> list[BudgetStep]:
        """Return the budget schedule asked for, empty for that of the stream."""
        return budget_steps(self.budget)

    @field_validator("model")
    @classmethod
    def _default_model(cls, value: str) -> str:
        return value or os.environ.get(MODEL_VARIABLE) or DEFAULT_MODEL

    @field_validator("arms")
    @classmethod
    def _known_arms(cls, value: str, info: ValidationInfo) -> str:
        beside = f",{cls.baselines},{','.join(REFERENCES)}" if info.data.get("mock") else ""
        return ",".join(arm.name for arm in arms(value or cls.brief_arms + beside, KNOWN))

    @field_validator("budget")
    @classmethod
    def _readable_budget(cls, value: str) -> str:
        budget_steps(value)
        return value


class Phase1Settings(RunSettings):
    """Phase 1: one drift, lessons keyed by the failing request as the first runs had it."""

    notebook: ClassVar[str] = "phase1"
    brief_arms: ClassVar[str] = "A0,A1,A2,A3"
    own_stream: ClassVar[str] = "phase1"

    keying: Keying = "request"
    """term a brand lesson is keyed under: request | task"""


class _PatternSettings(RunSettings):
    """A phase with several streams; a pattern is the short name of one."""

    pattern: str = ""

    @property
    def stream_name(self) -> str:
        """The name or file of the stream to replay."""
        own = patterns(self.notebook)
        return self.stream or (own[self.pattern].name if self.pattern else self.own_stream)

    @field_validator("pattern")
    @classmethod
    def _known_pattern(cls, value: str, info: ValidationInfo) -> str:
        if value and value not in patterns(cls.notebook):
            raise unknown("pattern", value, patterns(cls.notebook))
        if value and info.data.get("stream"):
            raise InputError(f"pattern {value!r} and stream {info.data['stream']!r}: name one of them")
        return value


class Phase2Settings(_PatternSettings):
    """Phase 2: one drift pattern, and what the granularity of invalidation is worth under it."""

    notebook: ClassVar[str] = "phase2"
    brief_arms: ClassVar[str] = "A0,A1,A2,A2D,A3"
    own_stream: ClassVar[str] = "phase2_v2"

    pattern: str = ""
    """v2 | v4 | churn | silent | rollback; empty: v2"""


class Phase3Settings(_PatternSettings):
    """Phase 3: four drifts that walk the table through every snapshot."""

    notebook: ClassVar[str] = "phase3"
    own_stream: ClassVar[str] = "phase3_m1"

    pattern: str = ""
    """m1, the ladder of four drifts; empty: m1"""


class AcmeSettings(_PatternSettings):
    """The second domain: billing, whose csm codes rotate."""

    notebook: ClassVar[str] = "acme"
    domains: ClassVar[tuple[str, ...]] = ("acme",)
    own_stream: ClassVar[str] = "acme_m1"

    pattern: str = ""
    """m1 | sanity | refunds; empty: m1"""
    stripe: Literal["embedded", "test"] = "embedded"
    """embedded | test (needs a test-mode key, sk_test_..., in STRIPE_API_KEY)"""
    keying: Literal["task"] = "task"
    """term a lesson is keyed under: task alone in this domain"""


class StaleAttemptsSettings(Settings):
    """The slot explorer: which slot it opens with."""

    notebook: ClassVar[str] = "stale_attempts"

    results: str = "latest"
    """a results file; latest: the newest in which something drifted"""
    epoch: int = Field(1, ge=1)
    """the drift epoch to open with"""
    arm: str = "A2"
    """the arm to open with"""


class CompareSettings(Settings):
    """The comparison: at least two results files, comma-separated."""

    notebook: ClassVar[str] = "compare"

    results: str = ""
    """at least two results files, comma-separated"""

    @property
    def files(self) -> list[str]:
        """The results files named."""
        return _names(self.results)

    @field_validator("results")
    @classmethod
    def _two_files(cls, value: str) -> str:
        if len(_names(value)) < 2:
            raise InputError(
                f"results {value!r}: name at least two results files, comma-separated, "
                "such as the ones that two runs of Phase 2 printed last"
            )
        return value


def _names(listed: str) -> list[str]:
    return [name for name in map(str.strip, listed.split(",")) if name]


Known = TypeVar("Known", bound=Settings)


def read_settings(kind: type[Known], given: Mapping[str, Any]) -> Known:
    """Return the checked settings of a kind.

    Raises InputError naming the first setting that is unknown, ill-typed or out of range.
    """
    for name in given:
        if name not in kind.model_fields:
            raise unknown("parameter", name, kind.model_fields)
    try:
        settings = kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"parameter {first['loc'][0]} = {first['input']!r}"
        raise InputError(f"{where}: {first['msg']}") from None
    if isinstance(settings, RunSettings):
        settings.note_given(given)
    return settings


def guard(kind: type[Known], namespace: Mapping[str, Any]) -> Known:
    """Return the checked settings found in a notebook's `namespace` (its `globals()`).

    Papermill only warns of a misspelt parameter and runs with the default; here every name that the
    notebook holds at this point and that is no parameter stops it, but for those that its own cells
    bound when they were run before. Raises InputError.
    """
    own = _bound_before(namespace.get("In", ()), set(kind.model_fields))
    given = {name: value for name, value in namespace.items() if _is_parameter(name, value)}
    return read_settings(kind, {name: value for name, value in given.items() if name not in own})


def _bound_before(executed: Sequence[str], parameters: set[str]) -> set[str]:
    """Return the names that cells bound which were executed from a first guard on.

    `executed` are the sources of cells in order, as IPython keeps them. A cell that binds a parameter
    is one in which a person sets parameters: what it binds is not passed over.
    """
    cells = itertools.dropwhile(lambda cell: "guard(" not in cell, executed)
    bound: set[str] = set()
    for cell in cells:
        with suppress(SyntaxError):  # a magic command
            names = {
                node.id
                for node in ast.walk(ast.parse(cell))
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            bound |= names if names.isdisjoint(parameters) else set()
    return bound


def _is_parameter(name: str, value: object) -> bool:
    shell = {"In", "Out", "exit", "quit", "get_ipython", "open"}
    return not name.startswith("_") and name not in shell and not inspect.ismodule(value)


def parameters_cell(kind: type[Settings]) -> str:
    """Return the source of a notebook's parameters cell: a line a field, its meaning as the comment.

    Papermill reads the lines (`--help-notebook`), so a type is a plain word, a default a literal, and a
    meaning holds no `=`, at which it would give the line up.
    """
    common = list(RunSettings.model_fields) if issubclass(kind, RunSettings) else []
    first = common[: common.index("arms")] if common else []
    own = [name for name in kind.model_fields if name not in common]
    lines = []
    for name in [*first, *own, *(each for each in common if each not in first)]:
        field = kind.model_fields[name]
        default = repr(field.default).replace("'", '"')
        lines.append(f"{name}: {type(field.default).__name__} = {default}  # {field.description}")
    return "\n".join(lines)


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
