"""The parameters of the experience study: which arms, in which variants, under which governance."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator

from crossmem import paths
from crossmem.domains import domain
from crossmem.errors import InputError, unknown
from crossmem.experience.arms import COMPONENTS, GOVERNED, TABLE, VARIANTS, ExperienceArm
from crossmem.experience.rendering import TOKENS
from crossmem.experience.skills import Skill, key_of, read_skills
from crossmem.memory.arms import REFERENCES, Arm, arms
from crossmem.settings import RunSettings, read_settings
from crossmem.streams import Stream

if TYPE_CHECKING:
    from crossmem.harness.results import Run


_CHOICES: dict[str, tuple[str, Collection[str]]] = {
    "arms": ("arm", [*COMPONENTS, *TABLE, *REFERENCES]),
    "variant": ("variant", VARIANTS),
    "governed": ("governance", GOVERNED),
}


class ExperienceSettings(RunSettings):
    """Experience memories beside the core's arms, on one stream.

    `arms` names arms of the table, or components (`simple`, `cards`, `rich`, `skills` and so on): each
    of these stands for its arms in the chosen `variant` and `governed`, comma-separated lists of their
    own.
    `context_tokens` bounds what the fixed variants put before the agent in an episode. `skills` is a
    folder of skill files that the arms of that component begin with.
    """

    notebook: ClassVar[str] = "experience"
    domains: ClassVar[tuple[str, ...]] = ("recipe", "acme")
    own_stream: ClassVar[str] = "experience_m1"
    brief_arms: ClassVar[str] = "A0,A1,A2,A2D,A3,A3C,LWG,simple,ancestral,sibling,cards,rich,skills"
    baselines: ClassVar[str] = "A1F"

    variant: str = "faithful,fixed"
    """of the components"""
    governed: str = "none,A2,A2D"
    """of the components"""
    context_tokens: int = Field(TOKENS, ge=0)
    """budget of the fixed variants, per episode"""
    skills: str = ""
    """folder of skill files that the skills arms begin with"""
    keying: Literal["task"] = "task"
    """the only one here"""
    budget: str = ""
    """byte budget of A3 and A3C, e.g. 6:420,14:none; empty: as the stream has it"""
    seed: int = 0
    """of the parents that memories draw; the scripted agent itself does not vary"""

    _read: tuple[Skill, ...] | None = None

    @field_validator("arms", "variant", "governed")
    @classmethod
    def _known_arms(cls, value: str, info: ValidationInfo) -> str:  # in place of the core's
        what, choices = _CHOICES[info.field_name or ""]
        if what == "arm" and not value:
            mock = info.data.get("mock")
            value = ",".join([cls.brief_arms, *([cls.baselines, *REFERENCES] if mock else [])])
        names = _names(value)
        for name in names or [value]:
            if name not in choices:
                raise unknown(what, name, choices)
        return ",".join(names)

    def arms_to_run(self) -> list[Arm]:
        """Return the arms to replay, components expanded. Raises InputError where one comes twice."""
        kinds = [
            variant if governed == "none" else f"{variant}.{governed}"
            for variant in _names(self.variant)
            for governed in _names(self.governed)
        ]
        names = [
            name
            for each in _names(self.arms)
            for name in ([f"{each}.{kind}" for kind in kinds] if each in COMPONENTS else [each])
        ]
        chosen = arms(names, {**TABLE, **REFERENCES})
        return [self._set_up(arm) if isinstance(arm, ExperienceArm) else arm for arm in chosen]

    def _set_up(self, arm: ExperienceArm) -> ExperienceArm:
        skills = self._skill_files() if arm.component == "skills" else ()
        return replace(arm, tokens=self.context_tokens, skills=skills)

    def arm_inputs(self) -> dict[str, Any]:
        """Return the skills, as they were read when the parameters were first used."""
        return {"skills": [asdict(skill) for skill in self._skill_files()]}

    def restore(self, material: Mapping[str, Any]) -> None:
        """Take the skills that a config kept in place of the files."""
        self._read = TypeAdapter(tuple[Skill, ...]).validate_python(material["skills"])

    def _skill_files(self) -> tuple[Skill, ...]:
        if self._read is None:
            found = read_skills(paths.given(self.skills)) if self.skills else {}
            self._read = tuple(found.values())
        return self._read

    def check_inputs(self, stream: Stream) -> None:
        """Raise InputError where no skill will ever be read; warn of those whose key no task has."""
        chosen = self.arms_to_run()
        if not self.skills:
            return
        if not any(isinstance(arm, ExperienceArm) and arm.component == "skills" for arm in chosen):
            raise InputError(f"skills {self.skills!r}: none of the arms is of the component skills")
        what = domain(stream.domain)
        met = {key_of(key) for episode in stream.episodes for key in what.keys(episode.task)}
        given = [skill.key for skill in self._skill_files()]
        missed = [key for key in given if key not in met]
        if len(missed) == len(given):
            near = unknown("key", missed[0], sorted(met))
            raise InputError(f"skills {self.skills!r}: no task of {stream.name} has their keys; {near}")
        if missed:
            text = f"skills {self.skills!r}: no task of {stream.name} has the key {', '.join(missed)}"
            warnings.warn(text, stacklevel=2)


def run(**given: Any) -> Run:
    """Run or load the study with settings of `ExperienceSettings`; raises what `study.run` raises."""
    from crossmem import study

    return study.run(read_settings(ExperienceSettings, given))


def arm_of(run: Run, name: str) -> Arm:
    """Return the arm called `name` as a run had it; raises InputError for one that the run lacks."""
    settings = ExperienceSettings.model_validate(run.config["parameters"])
    settings.restore(run.config["arm_inputs"])
    known = {arm.name: arm for arm in settings.arms_to_run()}
    if name not in known:
        raise unknown("arm", name, known)
    return known[name]


def _names(value: str) -> list[str]:
    return [name for name in map(str.strip, value.split(",")) if name]
