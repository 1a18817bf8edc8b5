"""The findings of the specification, shown on the faithful variant and gone from the fixed one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from crossmem.experience.node import FaithfulFile, NodeFile, pick_final
from crossmem.experience.rendering import Item, Section, fit, unlimited
from crossmem.experience.summaries import SummaryCache

from .world import deck, journal, lesson, node

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.experience.node import NodeJournal

SCORES = (0.6, 0.9, 0.7)


def stored(of: NodeJournal, path: Path) -> NodeFile:
    file = NodeFile(path)
    for each in of.nodes:
        file.append(journal_line(each.id, of))
    return file


def journal_line(number: int, of: NodeJournal) -> bytes:
    from crossmem.experience.node import checked_line

    return checked_line(of.nodes[number].dumped())


# -- 1: resume erases the evaluator's facts, and that changes decisions ------------------------------


def test_1_faithful_a_resume_forgets_the_facts_and_picks_the_final_node_at_random(
    tmp_path: Path,
) -> None:
    made = journal(*(node(number, score) for number, score in enumerate(SCORES)))
    file = FaithfulFile(tmp_path / "journal.jsonl")
    file.save(made.nodes)
    back = file.load()

    assert pick_final(made.nodes, seed=0) == 1
    assert all(each.info == {} for each in back)
    assert {pick_final(back, seed) for seed in range(10)} == {0, 1, 2}


def test_1_fixed_a_resume_keeps_every_fact_and_the_choice(tmp_path: Path) -> None:
    made = journal(*(node(number, score) for number, score in enumerate(SCORES)))
    back, bad = stored(made, tmp_path / "journal.jsonl").load()

    assert bad == []
    assert back.nodes == made.nodes
    assert {pick_final(back.nodes, seed) for seed in range(10)} == {1}


# -- 2: restored ancestors are shadows ----------------------------------------------------------------


def test_2_faithful_what_is_attached_to_a_restored_parent_never_reaches_the_journal(
    tmp_path: Path,
) -> None:
    file = FaithfulFile(tmp_path / "journal.jsonl")
    file.save(journal(node(0), node(1, 1.0, 0)).nodes)
    parent, child = file.load()
    child.parents[0].summary = "paid for"

    assert child.parents[0].id == parent.id
    assert child.parents[0] is not parent
    assert parent.summary is None


def test_2_fixed_a_parent_is_the_node_that_the_journal_holds(tmp_path: Path) -> None:
    made = journal(node(0), node(1, 1.0, 0))
    back, _ = stored(made, tmp_path / "journal.jsonl").load()
    cache = SummaryCache(faithful=False)
    (parent,) = (back.nodes[each] for each in back.nodes[1].parents)
    made_of_it, _ = cache.ensure(parent, None, parent.lessons, {})

    assert cache.read(back.nodes[0], None, back.nodes[0].lessons, {}) is made_of_it


# -- 3: rank and best are frozen ----------------------------------------------------------------------


def test_3_faithful_four_rising_scores_are_all_rank_1_and_best() -> None:
    rising = deck(journal(*(node(n, 0.1 * n) for n in range(4))), faithful=True)
    assert [(rising.rank(card), rising.is_best(card)) for card in rising.cards] == [(1, True)] * 4


def test_3_fixed_rank_and_best_are_those_of_now() -> None:
    rising = deck(journal(*(node(n, 0.1 * n) for n in range(4))), faithful=False)
    assert [rising.rank(card) for card in rising.cards] == [4, 3, 2, 1]
    assert [rising.is_best(card) for card in rising.cards] == [False, False, False, True]


# -- 7: a summary cached by id ------------------------------------------------------------------------


@pytest.mark.parametrize(("faithful", "calls"), [(True, 1), (False, 2)])
def test_7_the_same_id_with_another_request_is_served_the_old_summary_only_if_faithful(
    faithful: bool, calls: int
) -> None:
    cache = SummaryCache(faithful)
    old, new = [lesson("old")], [lesson("new")]
    cache.ensure(node(0), None, old, {})
    served, _ = cache.ensure(replace(node(0), request={"other": 1}), None, new, {})

    assert cache.calls == calls
    assert served is not None
    assert [each.value for each in served.lessons] == ["old" if faithful else "new"]
    assert cache.stale == faithful


def test_7_fixed_a_changed_world_alone_makes_a_new_summary() -> None:
    cache = SummaryCache(faithful=False)
    for version in ("1", "1", "2"):
        cache.ensure(node(0), None, [lesson()], {"celiac_brands": version})
    assert (cache.calls, cache.hits) == (2, 1)


# -- 9: write amplification ---------------------------------------------------------------------------


def written(number: int, *, faithful: bool) -> int:
    """Bytes that the cards of `number` nodes cost the files."""
    return deck(journal(*(node(each) for each in range(number))), faithful=faithful).written


def test_9_faithful_twice_the_nodes_write_more_than_six_times_the_bytes() -> None:
    assert written(160, faithful=True) > 6 * written(80, faithful=True)


def test_9_fixed_twice_the_nodes_write_twice_the_bytes() -> None:
    assert written(160, faithful=False) == pytest.approx(2 * written(80, faithful=False), rel=0.05)


# -- 10: no token budget over all ---------------------------------------------------------------------


def attempts(number: int) -> list[Section]:
    items = [Item(str(each), f"- attempt {each}: {'a plan ' * 100}") for each in range(number)]
    return [Section("Attempts:", items)]


def test_10_faithful_the_context_grows_with_the_journal() -> None:
    assert unlimited(attempts(100)).tokens == pytest.approx(
        10 * unlimited(attempts(10)).tokens, rel=0.1
    )


def test_10_fixed_the_context_keeps_to_its_budget_and_names_what_was_cut() -> None:
    fitted = fit(attempts(100), 800)
    assert 0 < fitted.tokens <= 800
    assert set(fitted.kept) | set(fitted.cut) == {str(each) for each in range(100)}
    assert fitted.cut
    assert not set(fitted.kept) & set(fitted.cut)


# -- 8: a torn line ------------------------------------------------------------


def test_8_faithful_a_torn_line_ends_the_whole_reading(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    FaithfulFile(path).save(journal(node(0), node(1)).nodes)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(json.JSONDecodeError):
        FaithfulFile(path).load()


def test_8_fixed_a_torn_line_is_named_and_neither_the_others_nor_the_next_are_lost(
    tmp_path: Path,
) -> None:
    made = journal(node(0), node(1), node(2))
    file = NodeFile(tmp_path / "journal.jsonl")
    file.append(journal_line(0, made))
    file.append(journal_line(1, made)[:-5])
    file.append(journal_line(2, made))
    back, bad = file.load()

    assert [each.request for each in back.nodes] == [made.nodes[n].request for n in (0, 2)]
    assert [each.line for each in bad] == [2]
