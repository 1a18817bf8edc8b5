"""The experience arms: a row per component, variant and governance, in the shape of the core's table.

The first three components are base processors; the fourth of them, `none`, is A0. An arm is called
`<component>.<variant>` or `<component>.<variant>.<governance>`: `cards.faithful`, `rich.fixed.A2D`. The
ledger of lessons behind every one of them admits everything and keeps all; the governance is its
invalidation: none, A2's or A2D's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

from crossmem.analysis.display import joined
from crossmem.experience.forgiving import A3C
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.rendering import TOKENS
from crossmem.memory import policies as p
from crossmem.memory.arms import ARMS, Arm, SignalKind

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying
    from crossmem.experience.skills import Skill
    from crossmem.memory.memory import MemoryBackend

Component = Literal["simple", "ancestral", "sibling", "cards", "rich", "skills"]
Variant = Literal["faithful", "fixed"]
Governed = Literal["none", "A2", "A2D"]

COMPONENTS: dict[Component, str] = {
    "simple": "every accepted attempt",
    "ancestral": "the line behind a parent",
    "sibling": "what came of a parent",
    "cards": "targeted cards and board",
    "rich": "targeted cards with summaries",
    "skills": "guidance by key",
}
VARIANTS: tuple[Variant, ...] = ("faithful", "fixed")
GOVERNED: dict[Governed, tuple[p.Invalidation, SignalKind | None]] = {
    "none": (p.invalidate_never, None),
    "A2": (p.drop_table, None),
    "A2D": (p.drop_changed, "diffs"),
}


@dataclass(frozen=True)
class ExperienceArm(Arm):
    """A composition of stores. `tokens` bounds what is put before the agent, in the fixed variant.

    `skills` are those that a run begins with.
    """

    component: Component = "cards"
    variant: Variant = "faithful"
    governed: Governed = "none"
    tokens: int = TOKENS
    skills: tuple[Skill, ...] = ()

    @property
    def draws(self) -> bool:
        """Whether it draws a parent."""
        return self.component not in {"simple", "skills"}

    @property
    def asks_for_summaries(self) -> bool:
        """Whether its memory wants texts written by the agent's model."""
        return self.component == "rich"

    @property
    def faithful(self) -> bool:
        """Whether it has the weaknesses as specified."""
        return self.variant == "faithful"

    def describe(self) -> dict[str, str | None]:
        """Return the composition by name; a budget of tokens only where it is in force."""
        begins = ", ".join(
            f"{skill.key} ({skill.version or 'none'} {skill.digest})" for skill in self.skills
        )
        tokens = None if self.faithful else str(self.tokens)
        return {**super().describe(), "tokens": tokens, "skills": begins or None}

    def memory(self, domain: Domain, keying: Keying, seed: str = "") -> MemoryBackend:
        """Return a memory of this arm that holds no attempt yet."""
        return ExperienceMemory(self, domain, keying, seed)


def row(component: Component, variant: Variant, governed: Governed = "none") -> ExperienceArm:
    """Return the arm of a component, variant and governance."""
    invalidation, told = GOVERNED[governed]
    return ExperienceArm(
        ".".join([component, variant, *([] if governed == "none" else [governed])]),
        COMPONENTS[component],
        p.admit_everything,
        p.keep_all,
        invalidation,
        told,
        component,
        variant,
        governed,
    )


def together(names: Sequence[str]) -> str:
    """Name arms, those of this room by component and by what they share.

    >>> together(["A0", "simple.fixed", "cards.fixed", "cards.fixed.A2"])
    'A0, simple (fixed), cards (fixed, fixed.A2)'
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        component, _, kind = name.partition(".")
        kinds.setdefault(component, []).append(kind)
    alike: dict[tuple[str, ...], list[str]] = {}
    for component, of in kinds.items():
        alike.setdefault(tuple(of), []).append(component)
    return ", ".join(
        joined(components) + (f" ({', '.join(of)})" if any(of) else "")
        for of, components in alike.items()
    )


EXPERIENCE_ARMS = {
    arm.name: arm for arm in (row(*each) for each in product(COMPONENTS, VARIANTS, GOVERNED))
}
TABLE: dict[str, Arm] = {**ARMS, A3C.name: A3C, **EXPERIENCE_ARMS}
"""All that an experience run can replay, the core's arms beside."""
