"""Which experience is selected, how flat the choice is, and what fits into a prompt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmem.experience.node import Node
from crossmem.experience.rendering import Item, Section, fit
from crossmem.experience.select import (
    EFFECTIVE,
    calibrated,
    effective_size,
    probabilities,
    utilities,
)

from .world import KEY, NAME, deck, journal, lesson, node, selector

# -- utility ------------------------------------------------------------------------------------------


def test_utility_is_the_metric_the_gain_and_the_novelty_weighted() -> None:
    made = journal(node(0, 0.5), node(1, 1.0, 0), node(2, 0.75, 0))
    found = utilities(deck(made, faithful=True), [0, 1, 2], 3, faithful=True)
    n = [1, 2**-0.5, 3**-0.5]  # the text search knows none of them: one family
    assert found == pytest.approx([0.25 * n[0], 1.0 + 0.4 + 0.25 * n[1], 0.5 + 0.2 + 0.25 * n[2]])


def test_equal_metrics_count_half() -> None:
    made = journal(node(0), node(1))
    first, _ = utilities(deck(made, faithful=True), [0, 1], 2, faithful=True)
    assert first == pytest.approx(0.5 + 0.25)


def test_faithful_a_hundred_candidates_are_drawn_nearly_uniformly() -> None:
    spread = [1.65 * each / 99 for each in range(100)]
    drawn = probabilities(spread, 1.0)
    assert sum(sorted(drawn)[-10:]) < 0.2
    assert effective_size(drawn) > 80


def test_fixed_the_temperature_leaves_about_three_candidates() -> None:
    spread = [1.65 * each / 99 for each in range(100)]
    drawn = probabilities(spread, calibrated(spread))
    assert effective_size(drawn) == pytest.approx(EFFECTIVE, rel=0.05)


@given(st.lists(st.floats(0, 1.65), min_size=1, max_size=50), st.floats(0, 5))
def test_probabilities_sum_to_one_at_any_temperature(utility: list[float], temperature: float) -> None:
    assert math.fsum(probabilities(utility, temperature)) == pytest.approx(1.0)


def test_the_temperature_has_a_floor() -> None:
    assert probabilities([0.0, 1e-8], 0.0) == pytest.approx([1 / (1 + 2.718281828), 0.731058578])


def test_fixed_a_node_counts_less_as_it_ages() -> None:
    made = journal(node(0), node(1))
    cards = deck(made, faithful=False)
    (young,) = utilities(cards, [0], 0, faithful=False)
    (old,) = utilities(cards, [0], 12, faithful=False)
    assert old == pytest.approx(young / 4)


# -- contexts -----------------------------------------------------------------------------------------


def test_nothing_related_is_a_draft() -> None:
    assert selector(journal(node(0))).context([NAME], 1).operator == "draft"


def test_improve_takes_a_parent_three_ancestors_and_three_siblings() -> None:
    line: list[Node] = [node(0, keys=(NAME,), lessons=(lesson("y", key=NAME),))]
    line += [node(n, 1.0, n - 1, keys=(NAME,), lessons=line[0].lessons) for n in (1, 2, 3)]
    line.append(node(4, 1.0, 3))
    line += [node(n, 1.0, 3, keys=(NAME,), lessons=line[0].lessons) for n in range(5, 10)]
    found = selector(journal(*line)).context([KEY], 10)
    assert (found.operator, found.primaries) == ("improve", (4,))
    assert found.nodes[:4] == (4, 3, 2, 1)
    assert len(found.nodes) == 7
    assert set(found.nodes[4:]) <= set(range(5, 10))


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


def test_lessons_of_different_kinds_are_crossed_from_two_parents() -> None:
    made = journal(node(0), node(1, keys=(NAME,), lessons=(lesson("y", key=NAME),)))
    found = selector(made).context([KEY, NAME], 2)
    assert (found.operator, found.primaries) == ("crossover", (0, 1))


def test_the_same_state_draws_the_same_parent() -> None:
    made = journal(*(node(n) for n in range(30)))
    draws = {selector(made).context([KEY], 30) for _ in range(3)}
    assert len(draws) == 1


def test_a_retry_is_shown_the_same_signature_and_faithful_whatever_came_last() -> None:
    other = node(0, 0.5, info={"violated": ["name"]})
    made = journal(other, node(1, 0.5), node(2), node(3, 0.5))
    assert selector(made).debug(3).nodes == (3, 2, 1, 0)  # no signature in the text of its output
    assert selector(made, faithful=False).debug(3).nodes == (3, 1)


def test_the_base_processors() -> None:
    made = journal(node(0), node(1, 0.5, 0), node(2, 0.5, 1), node(3, 1.0, 1))
    assert made.accepted() == [0, 3]
    assert made.ancestral(2) == [1, 2]
    assert made.ancestral(3) == []
    assert made.children(1) == [2, 3]


def test_fixed_ancestral_walks_on_past_a_success_that_no_longer_holds_to_one_that_does() -> None:
    made = journal(node(0), node(1, 1.0, 0), node(2, 0.5, 1), node(3, 0.5, 2))
    assert made.ancestral(3) == [2, 3]
    assert made.ancestral(3, lambda _: True) == [1, 2, 3]
    assert made.ancestral(3, lambda each: each.id == 0) == [0, 1, 2, 3]
    assert made.ancestral(3, lambda _: False) == [0, 1, 2, 3]


def test_fixed_sibling_follows_a_child_to_the_attempt_that_repaired_it() -> None:
    repaired = node(3, 1.0, 2, operator="debug")
    made = journal(node(0), node(1, 1.0, 0), node(2, 0.5, 0), repaired, node(4, 1.0, 2))
    assert made.children(0) == [1, 2]
    assert made.repaired_children(0) == [1, 2, 3]


# -- the token budget ---------------------------------------------------------------------------------


def section(title: str, *texts: str, floor: int = 0) -> Section:
    return Section(title, [Item(f"{title} {n}", text) for n, text in enumerate(texts)], floor)


@given(
    st.lists(st.lists(st.text(max_size=80), max_size=5), max_size=4),
    st.integers(0, 120),
    st.integers(0, 60),
)
def test_what_fits_is_within_the_budget_and_nothing_is_lost_unnamed(
    texts: list[list[str]], budget: int, floor: int
) -> None:
    sections = [section(f"S{n}", *each, floor=floor) for n, each in enumerate(texts)]
    fitted = fit(sections, budget)
    assert fitted.tokens <= budget
    assert sorted([*fitted.kept, *fitted.cut]) == sorted(i.name for s in sections for i in s.items)


def test_a_section_gets_its_floor_before_an_earlier_one_takes_all() -> None:
    big = section("big", *["x" * 40] * 20)
    fitted = fit([big, section("small", "y" * 40, floor=20)], 100)
    assert "small 0" in fitted.kept
    assert "big 0" in fitted.kept
    assert "big 19" in fitted.cut


def test_a_budget_below_the_smallest_item_keeps_nothing_and_says_so() -> None:
    fitted = fit([section("S", "a long enough text")], 1)
    assert (fitted.text, fitted.tokens, fitted.kept, fitted.cut) == ("", 0, (), ("S 0",))
