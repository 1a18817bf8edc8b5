"""The experience memories at 10^4 nodes, beside the figures of the system they are specified after.

Those figures were measured on another machine and stand for the order of magnitude: at 10,000 nodes an
operator's context takes 106 to 110 ms, all cards 20.4 s; at 800 nodes a step writes 134 MB of cards and
184 MB of board.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

from bench import Ratio, ratio, timed

from crossmem.domains import domain
from crossmem.domains.base import Task
from crossmem.experience.arms import row
from crossmem.experience.cards import Deck
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.node import Node
from crossmem.memory.entry import Entry, Key

NAMES = [f"ingredient {number:02}" for number in range(20)]
PAIRS, BRANDS = "incompatible_ingredients", "celiac_brands"
ADDED = 100
WHERE_20_MS_IS_ONE = 0.020


class Experienced:
    """A memory of `cards.fixed.A2` that holds `size` attempts, three of ten of them refused."""

    def __init__(self, size: int, *, faithful: bool = False) -> None:
        arm = row("cards", "faithful" if faithful else "fixed", "A2")
        self.memory = ExperienceMemory(arm, domain("recipe"), "task")
        self.random = random.Random(7)
        for _ in range(size):
            self.add(self.node())

    def node(self, ahead: int = 0) -> Node:
        """Make the attempt that comes `ahead` after the next."""
        number = len(self.memory.store.journal) + ahead
        grain = self.random.choice(["flour", "oats"])
        keys: tuple[Key, ...] = (("name", self.random.choice(NAMES), "thai"), ("brand", grain))
        lessons = (
            Entry(keys[0], PAIRS, f"{keys[0][1]}|thai", "replacement", "1", cacheable=True),
            Entry(keys[1], BRANDS, grain, "Tarnbeck GF 41", "1", cacheable=True),
        )
        good = self.random.random() > 0.3
        lately = range(max(0, number - 50), number)
        return Node(
            id=number,
            episode=number // 2,
            operator="improve",
            parents=tuple(self.random.sample(lately, min(2, number))),
            keys=keys,
            request=task(keys[0][1], grain).input,
            plan="brand and name as suggested",
            output="x" * 600,
            metric=1.0 if good else 1 / 3,
            info={"status": 200 if good else 422, "violated": [] if good else ["brand", "name"]},
            lessons=lessons if good else (),
        )

    def add(self, node: Node) -> None:
        self.memory.store.journal.append(node)
        self.memory.store.deck.add(self.memory.store.journal, node, node.parents)
        ledger = self.memory._ledger.store
        for lesson in node.lessons:
            if not ledger.find(lesson.key, lesson.value):
                ledger.put(lesson)

    def recall(self) -> float:
        """Select and render for a task of two kinds of lesson, a crossover; return the seconds."""
        asked = task(self.random.choice(NAMES), self.random.choice(["flour", "oats"]))
        started = time.perf_counter()
        recalled = self.memory.recall(asked)
        seconds = time.perf_counter() - started
        if not recalled or not recalled.text:
            raise RuntimeError("nothing was recalled")
        return seconds


def task(name: str, grain: str) -> Task:
    listed = [{"name": each, "amount": 1.0, "unit": "g"} for each in (name, grain)]
    body = {"cuisine": "thai", "dietary": ["celiac"], "ingredients": listed}
    return Task(id="t", description="", input=body)


def experience(sizes: Sequence[int], repetitions: int) -> Iterator[Ratio]:
    """Time selection and adding over journals of several sizes."""
    held = [Experienced(size) for size in sizes]
    name = f"experience: context among {sizes[-1]:,} nodes, of 20 ms"
    times = sorted(held[-1].recall() for _ in range(repetitions * 10))
    middle, slow = statistics.median(times), times[int(0.99 * len(times))]
    detail = (
        f"{middle * 1e3:.1f} ms, 99 of 100 under {slow * 1e3:.1f} ms; specified after: 106 to 110 ms"
    )
    yield Ratio(name, middle / WHERE_20_MS_IS_ONE, 1.0, detail)
    added = []
    written = []
    for _ in range(repetitions):
        before = [each.memory.store.deck.written for each in held]
        fresh = [[each.node(ahead) for ahead in range(ADDED)] for each in held]
        added.append(
            [timed(partial(_add_all, *each)) / ADDED for each in zip(held, fresh, strict=True)]
        )
        written.append([e.memory.store.deck.written - b for e, b in zip(held, before, strict=True)])
    pairs = [(times[-1], times[0]) for times in added]
    yield ratio(f"experience: add to {sizes[-1]:,} / {sizes[0]:,} nodes", pairs, 2.0)
    per = [[size / ADDED for size in sizes] for sizes in written]
    detail = f"{per[-1][-1]:,.0f} bytes a card"
    value = statistics.median(each[-1] / each[0] for each in per)
    yield Ratio(f"experience: bytes a card, {sizes[-1]:,} / {sizes[0]:,}", value, 1.2, detail)


def amplification(size: int) -> Ratio:
    """Say what the last card of `size` costs the faithful files, in cards of the fixed one."""
    costs = []
    for faithful in (True, False):
        held = Experienced(size - 1)
        deck = Deck(faithful, domain("recipe"))
        last = held.node()
        for node in held.memory.store.journal.nodes:
            deck.add(held.memory.store.journal, node, node.parents)
        before = deck.written
        held.memory.store.journal.append(last)
        deck.add(held.memory.store.journal, last, last.parents)
        costs.append(deck.written - before)
    detail = f"{costs[0]:,} to {costs[1]:,} bytes; specified after: 318 MB"
    name = f"experience: bytes of step {size:,}, faithful / fixed"
    return Ratio(name, costs[0] / costs[1], None, detail)


def _add_all(held: Experienced, nodes: list[Node]) -> None:
    for node in nodes:
        held.add(node)
