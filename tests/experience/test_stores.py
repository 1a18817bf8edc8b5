"""The stores on their own: what they keep, what they name, and what bad input does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from crossmem.domains.recipe import Recipe
from crossmem.errors import InputError
from crossmem.experience.cards import Deck
from crossmem.experience.skills import Guidance, Skill, read_skills
from crossmem.experience.summaries import PLAIN_CUT, RETRY_AFTER, Subject, SummaryCache, cut, trimmed

from .world import KEY, deck, journal, lesson, node

if TYPE_CHECKING:
    from pathlib import Path

# -- the attempt journal -----------------------------------------------------------------------------


def test_ancestors_come_nearest_first_each_once_and_no_more_than_asked() -> None:
    made = journal(node(0), node(1, 1.0, 0), node(2, 1.0, 0), node(3, 1.0, 1, 2), node(4, 1.0, 3))
    assert made.ancestors(4, 3) == [3, 1, 2]
    assert made.ancestors(4, 9) == [3, 1, 2, 0]
    assert made.children(0) == [1, 2]


# -- cards and board ---------------------------------------------------------------------------------


class Programs(Recipe):
    """A domain whose requests and answers are texts that can be searched."""

    def family_in_text(self, text: str) -> str | None:
        return "ensemble" if "ensemble" in text else None

    def error_in_text(self, text: str) -> str | None:
        return "timeout" if "timeout" in text else None


def test_faithful_cards_ask_the_domain_to_search_texts_and_fixed_ones_read_the_rules() -> None:
    odd = node(0, 0.5, plan="an ensemble", output="timeout=600", info={"violated": ["name", "brand"]})
    for faithful, what, said in (
        (True, Programs(), ("ensemble", "timeout")),
        (True, Recipe(), ("unknown", None)),
        (False, Programs(), ("brand+name", "name+brand")),
    ):
        card = Deck(faithful, what).add(journal(odd), odd)
        assert (card.family, card.signature) == said


def test_novelty_falls_with_the_family_and_delta_is_the_gain_over_the_best_parent() -> None:
    made = journal(node(0, 0.5), node(1, 0.8), node(2, 1.0, 0, 1))
    cards = deck(made, faithful=False).cards
    assert [card.novelty for card in cards] == pytest.approx([1, 2**-0.5, 3**-0.5])
    assert [card.delta for card in cards] == [None, None, pytest.approx(0.2)]


def test_the_board_counts_by_family_error_and_world() -> None:
    made = journal(node(0, 0.5), node(1, 1.0, 0), node(2, 1.0, 1))
    board = deck(made, faithful=False).board
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


# -- summaries ---------------------------------------------------------------------------------------


def test_a_summary_says_what_it_was_accepted_with_and_what_changed() -> None:
    made = Subject(node(1), node(0, 0.5), (lesson("X 1"),), {}).template()
    assert made.overview == 'Accepted with brand oats = "X 1".'
    assert made.comparison == "Better than its parent by 0.50: brand of oats: X 1."


def test_of_two_attempts_of_one_content_a_summary_says_what_holds_of_both() -> None:
    sent = node(0).request
    twins = [
        Subject(
            node(at + 1, 1.0, at, request=sent, plan="p"), node(at, 0.5, request=sent, plan="p"), (), {}
        )
        for at in (0, 7)
    ]
    assert len({each.digest for each in twins}) == len({each.template() for each in twins}) == 1


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
    cache, of = SummaryCache(faithful=True), Subject(node(0), None, (), {})
    assert cache.take(of, fields, 0) == 0
    assert cache.read(of) is None


def test_fields_are_cut_at_420_characters_and_a_cards_text_at_360() -> None:
    long = Subject(node(0), None, (lesson("y" * 900),), {}).template()
    assert len(long.shown) == 420 + 1 + len(long.comparison)
    assert len(cut("z" * 900, PLAIN_CUT)) == 360
    assert cut("a  b\n c", 9) == "a b c"


def test_an_answer_of_more_than_5100_characters_keeps_2500_at_either_end() -> None:
    whole = "a" * 2_600 + "b" * 2_500
    assert trimmed(whole) == whole
    assert trimmed(f"{whole}c") == f"{'a' * 2_500} ... 101 characters ... {'b' * 2_499}c"


def test_fixed_a_summary_written_in_vain_is_wanted_again_after_ten_episodes() -> None:
    assert RETRY_AFTER == 10
    cache, of = SummaryCache(faithful=False), Subject(node(0), None, (), {})
    cache.take(of, None, 3)
    assert [cache.wants(of, episode) for episode in (4, 12, 13)] == [False, False, True]


# -- skills ------------------------------------------------------------------------------------------

OLD = Skill("brand oats", "- use X 1", "1")
NEW = Skill("brand oats", "- use X 2", "2")


def test_fixed_a_new_version_replaces_the_block_in_place_and_the_same_one_changes_nothing() -> None:
    long = Skill(OLD.key, "- use X 1\n\n## Details\n\n- X 1 it is", "1")
    guidance = Guidance(faithful=False)
    for skill in (long, Skill("name cream", "- use coconut")):
        assert guidance.learn(skill)
    assert guidance.learn(NEW)
    assert "X 1" not in guidance.prompt
    assert guidance.prompt.index("X 2") < guidance.prompt.index("coconut")
    assert guidance.prompt.endswith("- use coconut")
    written = guidance.written
    assert not guidance.learn(NEW)
    assert guidance.written == written


def test_a_skill_file_has_a_key_and_a_text(tmp_path: Path) -> None:
    path = tmp_path / "SKILL_oats.md"
    path.write_text("---\nkey: brand oats\nversion: 2\n---\n- use X 2\n", encoding="utf-8")
    assert read_skills(tmp_path) == {NEW.key: NEW}
    (tmp_path / "again.md").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="is held by another file"):
        read_skills(tmp_path)


@pytest.mark.parametrize(("faithful", "value"), [(True, "X 1"), (False, "X 2")])
def test_guidance_takes_an_update_only_if_fixed(faithful: bool, value: str) -> None:
    guidance = Guidance(faithful)
    guidance.learn(OLD)
    assert guidance.learn(NEW) is not faithful
    assert value in guidance.prompt
    assert KEY[1] in guidance.prompt
