"""The stores on their own: what they keep, what they name, and what bad input does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmem.errors import InputError
from crossmem.experience.cards import family_of, signature_of
from crossmem.experience.node import Node, NodeFile, NodeJournal, checked_line, loaded
from crossmem.experience.skills import Guidance, Skill, inject, read_skill, read_skills
from crossmem.experience.summaries import SummaryCache, cut, parsed, shown, template

from .world import KEY, deck, journal, lesson, node

if TYPE_CHECKING:
    from pathlib import Path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# -- the attempt journal -----------------------------------------------------------------------------


@given(
    request=st.dictionaries(st.text(), JSON, max_size=4),
    info=st.dictionaries(st.text(), JSON, max_size=4),
    texts=st.tuples(st.text(), st.text()),
    metric=st.floats(0, 1),
    value=JSON,
)
def test_a_node_comes_back_as_it_was_written(
    request: dict[str, Any], info: dict[str, Any], texts: tuple[str, str], metric: float, value: Any
) -> None:
    plan, output = texts
    made = node(0, request=request, info=info, plan=plan, output=output, metric=metric)
    made = Node(**{**vars(made), "lessons": (lesson(value),)})
    assert loaded(made.dumped()) == made
    assert loaded(round_trip(made)) == made


def round_trip(made: Node) -> dict[str, Any]:
    import json

    content: dict[str, Any] = json.loads(checked_line(made.dumped()).partition(b" ")[2])
    return content


def test_a_damaged_record_is_named_and_the_rest_kept_with_their_links(tmp_path: Path) -> None:
    file = NodeFile(tmp_path / "nodes")
    made = journal(node(0), node(1, 1.0, 0), node(2, 1.0, 0, 1))
    for each in made.nodes:
        file.append(checked_line(each.dumped()))
    lines = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(lines[0] + lines[1].replace(b"brand", b"bland", 1) + lines[2])
    back, bad = file.load()

    assert [(each.line, each.why) for each in bad] == [(2, "altered: its checksum is another")]
    assert [each.request for each in back.nodes] == [made.nodes[n].request for n in (0, 2)]
    assert back.nodes[1].parents == (0,)


def test_a_record_of_another_schema_is_named(tmp_path: Path) -> None:
    file = NodeFile(tmp_path / "nodes")
    file.append(checked_line({**node(0).dumped(), "schema": 2}))
    file.append(checked_line(node(0).dumped()))
    back, bad = file.load()
    assert len(back) == 1
    assert [(each.line, each.why) for each in bad] == [(1, "no node of schema 1: schema 2, not 1")]


@pytest.mark.parametrize("bad", [node(1), node(0, 1.0, 0), node(0, 1.0, -1)])
def test_a_node_out_of_order_or_with_an_unknown_parent_is_refused(bad: Node) -> None:
    with pytest.raises(ValueError, match=f"node {bad.id}"):
        NodeJournal().append(bad)


def test_ancestors_come_nearest_first_each_once_and_no_more_than_asked() -> None:
    made = journal(node(0), node(1, 1.0, 0), node(2, 1.0, 0), node(3, 1.0, 1, 2), node(4, 1.0, 3))
    assert made.ancestors(4, 3) == [3, 1, 2]
    assert made.ancestors(4, 9) == [3, 1, 2, 0]
    assert made.children(0) == [1, 2]
    assert made.children(0, 1) == [2]


# -- cards and board ---------------------------------------------------------------------------------


def test_the_faithful_family_is_a_text_search_and_the_fixed_one_the_rules_met() -> None:
    commented = node(0, plan="no ensemble here, lgb = 1")
    assert family_of(commented, faithful=True) == "ensemble+lightgbm"
    assert family_of(node(0), faithful=True) == "unknown"
    assert family_of(node(0), faithful=False) == "brand"
    assert family_of(node(0, 0.5), faithful=False) == "brand"


def test_the_faithful_signature_is_the_first_pattern_and_the_fixed_one_the_rules_violated() -> None:
    odd = node(0, 0.5, output="timeout=600 and a KeyError", info={"violated": ["name", "brand"]})
    assert signature_of(odd, faithful=True) == "timeout"
    assert signature_of(odd, faithful=False) == "name+brand"
    assert signature_of(node(0), faithful=False) is None


def test_novelty_falls_with_the_family_and_delta_is_the_gain_over_the_best_parent() -> None:
    made = journal(node(0, 0.5), node(1, 0.8), node(2, 1.0, 0, 1))
    cards = deck(made, faithful=False).cards
    assert [card.novelty for card in cards] == pytest.approx([1, 2**-0.5, 3**-0.5])
    assert [card.delta for card in cards] == [None, None, pytest.approx(0.2)]


def test_the_board_counts_by_family_error_and_world() -> None:
    made = journal(node(0, 0.5), node(1, 1.0, 0), node(2, 1.0, 1))
    board = deck(made, faithful=False).board
    assert (board.number, board.valid) == (3, 2)
    assert board.errors == {"brand": 1}
    assert board.trend == pytest.approx(0.25)
    assert board.best is not None
    assert board.best.node == 1
    assert board.lines_of({"celiac_brands": "1"}, 2) == [
        "Under celiac_brands 1: 3 attempts, best attempt 1 (brand, 1.00); refused lately for brand x0.8"
    ]
    assert board.lines_of({"celiac_brands": "2"}, 2) == ["Under celiac_brands 2: 0 attempts"]
    assert board.lines()[0] == "Best so far: attempt 1 (brand, 1.00)"


def test_the_fixed_board_forgets_old_errors_and_the_best_of_another_world() -> None:
    here, there = {"celiac_brands": "1"}, {"celiac_brands": "2"}
    facts = {"status": 422, "violated": ["brand"]}
    made = journal(
        node(0, 1.0, info={"status": 200, "violated": [], "stamps": here}),
        node(1, 0.5, 0, info={**facts, "stamps": there}),
    )
    board = deck(made, faithful=False).board
    assert "best" not in board.lines_of(there, 1)[0]
    assert "best attempt 0" in board.lines_of(here, 1)[0]
    assert "x1.0" in board.lines_of(there, 1)[0]
    assert "x0.5" in board.lines_of(there, 7)[0]
    assert "lately" not in board.lines_of(there, 8)[0]
    assert "Best so far: attempt 0" in board.lines()[0]


# -- summaries ---------------------------------------------------------------------------------------


def test_a_summary_says_what_it_was_accepted_with_and_what_changed() -> None:
    made = template(node(1), node(0, 0.5), [lesson("X 1")])
    assert made.overview == 'Accepted with brand oats = "X 1".'
    assert made.comparison == "Better than its parent by 0.50: brand of oats: X 1."


def test_of_two_attempts_of_one_content_a_summary_says_what_holds_of_both() -> None:
    sent = node(0).request
    twins = [(node(at + 1, 1.0, at), node(at, 0.5, request=sent, plan="p")) for at in (0, 7)]
    twins = [(replace(each, request=sent, plan="p"), parent) for each, parent in twins]
    cache = SummaryCache(faithful=False)
    assert len({cache.key(each, parent, [], {}) for each, parent in twins}) == 1
    assert len({template(each, parent, []) for each, parent in twins}) == 1


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        {"method_overview": "a"},
        {"method_overview": " ", "parent_comparison_experience": "a"},
        {"method_overview": "a", "parent_comparison_experience": 1},
    ],
)
def test_a_summary_without_its_two_fields_is_none(fields: dict[str, Any] | None) -> None:
    assert parsed(fields, ()) is None


def test_fields_are_cut_at_420_characters_and_a_cards_text_at_360() -> None:
    long = template(node(0), None, [lesson("y" * 900)])
    assert len(shown(long, "")) == 420 + 1 + len(long.comparison)
    assert len(shown(None, "z" * 900)) == 360
    assert cut("a  b\n c", 9) == "a b c"


def test_summaries_come_back_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    cache = SummaryCache(faithful=False)
    for value in ("a", "b"):
        cache.ensure(node(0), None, [lesson(value)], {})
    cache.save(tmp_path / "rich")
    text = (tmp_path / "rich").read_bytes()
    (tmp_path / "rich").write_bytes(text.replace(b'"a"', b'"c"', 1))
    back = SummaryCache(faithful=False)
    bad = back.load(tmp_path / "rich")
    assert [each.line for each in bad] == [1]
    assert list(back.kept.items()) == list(cache.kept.items())[1:]


# -- skills ------------------------------------------------------------------------------------------

OLD = Skill("brand oats", "- use X 1", "1")
NEW = Skill("brand oats", "- use X 2", "2")


def test_faithful_a_heading_that_is_there_is_never_written_again() -> None:
    prompt = inject("Task.", {OLD.key: OLD}, OLD.key, faithful=True).prompt
    again = inject(prompt, {NEW.key: NEW}, NEW.key, faithful=True)
    assert again.prompt == prompt
    assert again.skipped == (OLD.key,)


def test_fixed_a_new_version_replaces_the_block_in_place_and_the_same_one_changes_nothing() -> None:
    other = Skill("name cream", "- use coconut")
    both = {OLD.key: OLD, other.key: other}
    prompt = inject("Task.", both, OLD.key, other.key, faithful=False).prompt
    again = inject(prompt, {NEW.key: NEW}, NEW.key, faithful=False)
    assert again.replaced == (NEW.key,)
    assert "X 2" in again.prompt
    assert "X 1" not in again.prompt
    assert again.prompt.index("X 2") < again.prompt.index("coconut")
    assert inject(again.prompt, {NEW.key: NEW}, NEW.key, faithful=False).skipped == (NEW.key,)


def test_fixed_a_block_is_replaced_with_the_headings_of_its_own_text() -> None:
    long = Skill(OLD.key, "- use X 1\n\n## Details\n\n- X 1 it is", "1")
    other = Skill("name cream", "- use coconut")
    both = {long.key: long, other.key: other}
    prompt = inject("Task.", both, long.key, other.key, faithful=False).prompt
    again = inject(prompt, {NEW.key: NEW}, NEW.key, faithful=False).prompt
    assert "X 1" not in again
    assert again.endswith("- use coconut")


def test_a_skill_that_is_missing_is_named() -> None:
    assert inject("Task.", {}, "brand oats", faithful=False).missing == ("brand oats",)


def test_a_skill_file_has_a_key_and_a_text(tmp_path: Path) -> None:
    path = tmp_path / "SKILL_oats.md"
    path.write_text("---\nkey: brand oats\nversion: 2\n---\n- use X 2\n", encoding="utf-8")
    assert read_skills(tmp_path) == {NEW.key: NEW}
    (tmp_path / "again.md").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="is held by another file"):
        read_skills(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- use X 2\n", "no key"),
        ("---\nversion: 2\n---\n- use X 2\n", "no key"),
        ("---\nkey: brand oats\n---\n\n", "nothing but its key"),
        ("", "no key"),
    ],
)
def test_a_skill_file_without_key_or_text_is_an_error_that_names_it(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "oats.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"oats\.md: {why}"):
        read_skill(path)


@pytest.mark.parametrize(("faithful", "value"), [(True, "X 1"), (False, "X 2")])
def test_guidance_takes_an_update_only_if_fixed(faithful: bool, value: str) -> None:
    guidance = Guidance(faithful)
    guidance.learn(OLD)
    assert guidance.learn(NEW) is not faithful
    assert value in guidance.prompt
    assert KEY[1] in guidance.prompt
