"""Which nodes' experience stands before an agent: operators, contexts, utility.

**Faithful**: softmax over the utility at temperature 1, nearly uniform; the artificial difference
between operators as specified: 3 ancestors and 3 siblings (improve), 2 and 2 for each of two parents
(crossover), up to 8 related refusals, topped up with whatever came last (debug).
**Fixed**: the utility decays with a node's age and the temperature is set so that about `EFFECTIVE`
candidates share the choice; nodes that teach nothing about the task are no evidence; debug takes the
same signature alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crossmem.experience.node import NEWEST
from crossmem.memory.entry import Key, canonical_json

if TYPE_CHECKING:
    import numpy.typing as npt

    from crossmem.experience.cards import Deck
    from crossmem.experience.node import NodeJournal, Operator
    from crossmem.memory.entry import Entry

    Array = npt.NDArray[np.float64]

WEIGHTS = (1.0, 0.4, 0.25)
"""Of the metric, of the gain over the parent, of novelty."""
EFFECTIVE = 3.0
"""Fixed: the effective number of candidates among which the parent is drawn."""
HALF_LIFE = 6.0
"""Fixed: episodes after which a node counts half."""
NEAR = {"improve": 3, "crossover": 2}
"""Ancestors, and siblings, of each parent by operator."""
RELATED = 8
"""Related refusals that a retry is shown."""


def decay(age: float) -> float:
    """Return what is left of a weight of 1 after `age` episodes."""
    return float(0.5 ** (age / HALF_LIFE))


@dataclass(frozen=True)
class Context:
    """What was selected for one prompt: an operator, its primaries, and all nodes, primaries first."""

    operator: Operator
    primaries: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()


def utilities(
    deck: Deck, nodes: Sequence[int], episode: int, *, faithful: bool, among_all: bool = False
) -> list[float]:
    """Return U = 1.0 S + 0.4 D + 0.25 N of each node; fixed: halved every `HALF_LIFE` episodes.

    S is the min-max of the metric over the nodes (all equal: 0.5), D the gain over the largest gain,
    N the novelty. `among_all`: min-max and largest gain are those of all cards.
    """
    cards = [deck.cards[node] for node in nodes]
    metrics = [card.metric for card in cards]
    low, high = deck.metrics if among_all else (min(metrics), max(metrics))
    largest = deck.largest_delta if among_all else max(c.delta or 0.0 for c in cards)
    found = []
    for card in cards:
        score = (card.metric - low) / (high - low) if high > low else 0.5
        gain = max(0.0, card.delta or 0.0) / largest if largest > 0 else 0.0
        utility = WEIGHTS[0] * score + WEIGHTS[1] * gain + WEIGHTS[2] * card.novelty
        found.append(utility * (1.0 if faithful else decay(episode - card.episode)))
    return found


def probabilities(utility: Sequence[float] | Array, temperature: float) -> Array:
    """Return the softmax of U / T; T is floored at 1e-8."""
    raw: Array = np.exp((np.asarray(utility) - np.max(utility)) / max(temperature, 1e-8))
    raw /= raw.sum()
    return raw


def effective_size(probability: Array) -> float:
    """Return 1 / sum p^2: among how many candidates a draw really chooses."""
    return float(1 / np.square(probability).sum())


def calibrated(utility: Sequence[float]) -> float:
    """Return the temperature at which `EFFECTIVE` candidates share the choice; 1.0 for no more."""
    if len(utility) <= EFFECTIVE:
        return 1.0
    given = np.asarray(utility)
    low, high = 1e-4, 10.0
    for _ in range(16):
        middle = math.sqrt(low * high)
        if effective_size(probabilities(given, middle)) > EFFECTIVE:
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class Selector:
    """Chooses from a journal and its cards.

    `usable` tells whether a lesson may still be served; `chance` names the run of chance drawn from.
    """

    journal: NodeJournal
    deck: Deck
    faithful: bool
    chance: str
    usable: Callable[[Entry], bool]

    def context(self, keys: Sequence[Key], episode: int) -> Context:
        """Return the context of an episode's first attempt at a task with these keys."""
        known = {key: found for key in keys if (found := self._candidates(key))}
        kinds = list(dict.fromkeys(key[0] for key in known))
        pools = [
            sorted({node for key, found in known.items() if key[0] == kind for node in found})
            for kind in kinds[:2]
        ]
        drawn = [self._draw(pool[-NEWEST:], episode, number) for number, pool in enumerate(pools)]
        operator: Operator = ("draft", "improve", "crossover")[len(pools)]
        nodes = dict.fromkeys(drawn)
        for primary in tuple(nodes):
            nodes.update(dict.fromkeys(self.journal.ancestors(primary, NEAR[operator])))
            nodes.update(dict.fromkeys(self._siblings(primary, NEAR[operator], episode)))
        return Context(operator, tuple(dict.fromkeys(drawn)), tuple(nodes))

    def debug(self, node: int) -> Context:
        """Return the context of a retry after the refusal of `node`: refusals of the same signature.

        Faithful: then whatever came last, successes too.
        """
        signature = self.deck.cards[node].signature or ""
        related = self.deck.alike.get(signature, [])[: -RELATED - 2 : -1]
        if self.faithful:
            related = [*related, *(each.id for each in self.journal.nodes[: -2 * RELATED - 2 : -1])]
        nodes = dict.fromkeys(each for each in related if each != node)
        return Context("debug", (node,), (node, *nodes)[: RELATED + 1])

    def _candidates(self, key: Key) -> list[int]:
        """Return the newest accepted nodes with a lesson of `key` that may still be served."""
        known: dict[str, bool] = {}
        found = []
        for number in self.journal.accepted_with(key):
            lesson = next(each for each in self.journal.nodes[number].lessons if each.key == key)
            value = place_of(lesson)[1]
            if value not in known:
                known[value] = self.usable(lesson)
            if known[value]:
                found.append(number)
        return found

    def _draw(self, pool: Sequence[int], episode: int, number: int) -> int:
        """Draw a parent by utility, the same for the same chance, episode and number of the draw."""
        utility = utilities(self.deck, pool, episode, faithful=self.faithful)
        temperature = 1.0 if self.faithful else calibrated(utility)
        chooser = random.Random(f"{self.chance}/{episode}/{number}")  # noqa: S311
        return chooser.choices(pool, probabilities(utility, temperature).tolist())[0]

    def _siblings(self, node: int, number: int, episode: int) -> list[int]:
        """Return the best nodes that share a parent with `node`, faithful: measured among all cards."""
        parents = self.journal.nodes[node].parents
        around = {each for parent in parents for each in self.journal.children(parent)} - {node}
        pool = sorted(around)[-NEWEST:]
        if not pool:
            return []
        faithful = self.faithful
        utility = utilities(self.deck, pool, episode, faithful=faithful, among_all=faithful)
        ranked = sorted(zip(utility, pool, strict=True), reverse=True)
        return [each for _, each in ranked[:number]]


def place_of(lesson: Entry) -> tuple[Key, str]:
    """Return what tells a lesson from others: its key, and its value as text."""
    value = lesson.value
    return lesson.key, f'"{value}' if isinstance(value, str) else canonical_json(value)
