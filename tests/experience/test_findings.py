"""The findings of the specification, shown on the faithful variant and gone from the fixed one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crossmem.experience.rendering import Item, Section, fit
from crossmem.experience.summaries import Subject, SummaryCache

from .world import deck, journal, lesson, node

# -- 3: rank and best are frozen ----------------------------------------------------------------------


@pytest.mark.parametrize(("faithful", "ranks"), [(True, [1, 1, 1, 1]), (False, [4, 3, 2, 1])])
def test_3_four_rising_scores_are_all_rank_1_only_if_faithful(faithful: bool, ranks: list[int]) -> None:
    rising = deck(journal(*(node(n, 0.1 * n) for n in range(4))), faithful=faithful)
    assert [rising.rank(card) for card in rising.cards] == ranks


# -- 7: a summary cached by id ------------------------------------------------------------------------


@pytest.mark.parametrize(("faithful", "calls"), [(True, 1), (False, 2)])
def test_7_the_same_id_with_another_request_is_served_the_old_summary_only_if_faithful(
    faithful: bool, calls: int
) -> None:
    cache = SummaryCache(faithful)
    new = Subject(replace(node(0), request={"other": 1}), None, (lesson("new"),), {})
    cache.ensure(Subject(node(0), None, (lesson("old"),), {}))
    cache.ensure(new)
    served = cache.read(new)

    assert cache.calls == calls
    assert served is not None
    assert [each.value for each in served.lessons] == ["old" if faithful else "new"]
    assert cache.stale == faithful


def test_7_fixed_a_changed_world_alone_makes_a_new_summary() -> None:
    cache = SummaryCache(faithful=False)
    for version in ("1", "1", "2"):
        cache.ensure(Subject(node(0), None, (lesson(),), {"celiac_brands": version}))
    assert (cache.calls, cache.hits) == (2, 1)


# -- 9: write amplification ---------------------------------------------------------------------------


def written(number: int, *, faithful: bool) -> int:
    """Bytes that the cards of `number` nodes cost the files."""
    return deck(journal(*(node(each) for each in range(number))), faithful=faithful).written


def test_9_twice_the_nodes_write_twice_the_bytes_but_six_times_and_more_if_faithful() -> None:
    assert written(160, faithful=True) > 6 * written(80, faithful=True)
    assert written(160, faithful=False) == pytest.approx(2 * written(80, faithful=False), rel=0.05)


# -- 10: no token budget over all ---------------------------------------------------------------------


def attempts(number: int) -> list[Section]:
    items = [Item(str(each), f"- attempt {each}: {'a plan ' * 100}") for each in range(number)]
    return [Section("Attempts:", items)]


def test_10_faithful_the_context_grows_with_the_journal() -> None:
    assert fit(attempts(100), math.inf).tokens == pytest.approx(
        10 * fit(attempts(10), math.inf).tokens, rel=0.1
    )


def test_10_fixed_the_context_keeps_to_its_budget_and_names_what_was_cut() -> None:
    fitted = fit(attempts(100), 800)
    assert 0 < fitted.tokens <= 800
    assert set(fitted.kept) | set(fitted.cut) == {str(each) for each in range(100)}
    assert fitted.cut
    assert not set(fitted.kept) & set(fitted.cut)
