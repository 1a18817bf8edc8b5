"""The constants that the specification gives, each by what it does."""

from __future__ import annotations

import pytest

from crossmem.experience.node import Node, NodeJournal
from crossmem.experience.select import Selector, probabilities
from crossmem.experience.summaries import RETRY_AFTER, Subject, SummaryCache, trimmed
from crossmem.memory.entry import Key

from .world import KEY, deck, journal, lesson, node

NAME: Key = ("name", "cream", "thai")


def selector(of: NodeJournal, *, faithful: bool = True) -> Selector:
    return Selector(of, deck(of, faithful=faithful), faithful, "0", lambda _: True)


def refused(number: int, *parents: int) -> Node:
    return node(number, 0.5, *parents)


def test_crossover_takes_two_ancestors_and_two_siblings_of_each_of_two_parents() -> None:
    nodes: list[Node] = []
    for last in (node(5, 1.0, 4), node(14, 1.0, 13, lessons=(lesson("y", key=NAME),))):
        line = len(nodes)
        nodes += [refused(line + n, *([line + n - 1] if n else [])) for n in range(5)]
        nodes.append(last)
        nodes += [refused(len(nodes) + n, line + 4) for n in range(3)]
    found = selector(journal(*nodes)).context([KEY, NAME], 20)
    assert (found.operator, found.primaries) == ("crossover", (5, 14))
    assert set(found.nodes) & set(range(5)) == {4, 3}
    assert set(found.nodes) & set(range(9, 14)) == {13, 12}
    assert len(set(found.nodes) & {6, 7, 8}) == len(set(found.nodes) & {15, 16, 17}) == 2
    assert len(found.nodes) == 10


@pytest.mark.parametrize("faithful", [True, False])
def test_a_retry_is_shown_eight_refusals_at_most_the_newest_first(faithful: bool) -> None:
    made = journal(*(refused(n) for n in range(12)))
    assert selector(made, faithful=faithful).debug(11).nodes == (11, *range(10, 2, -1))


def test_the_temperature_has_a_floor() -> None:
    assert probabilities([0.0, 1e-8], 0.0) == pytest.approx([1 / (1 + 2.718281828), 0.731058578])


def test_an_answer_of_more_than_5100_characters_keeps_2500_at_either_end() -> None:
    whole = "a" * 2_600 + "b" * 2_500
    assert trimmed(whole) == whole
    assert trimmed(f"{whole}c") == f"{'a' * 2_500} ... 101 characters ... {'b' * 2_499}c"


def test_fixed_a_summary_written_in_vain_is_wanted_again_after_ten_episodes() -> None:
    assert RETRY_AFTER == 10
    cache, of = SummaryCache(faithful=False), Subject(node(0), None, (), {})
    cache.take(of, None, 3)
    assert [cache.wants(of, episode) for episode in (4, 12, 13)] == [False, False, True]


def test_the_board_shows_the_last_five_gains_and_families_of_two_cards_as_rare() -> None:
    gains = [node(0, 0.0), *(node(n, 0.0, 0) for n in range(1, 3)), node(3, 1.0, 0)]
    gains += [node(n, 1.0, 3) for n in range(4, 8)]
    board = deck(journal(*gains), faithful=False).board
    assert board.trend == pytest.approx(0.2)
    assert board.underexplored == []

    kinds = [("a", 1.0), ("a", 1.0), ("b", 1.0), ("b", 1.0), ("b", 1.0), ("c", 0.5)]
    rare = [
        node(n, metric, lessons=(lesson("y", key=(kind, "x")),), info={"status": 200})
        for n, (kind, metric) in enumerate(kinds)
    ]
    assert deck(journal(*rare), faithful=False).board.underexplored == ["a"]
