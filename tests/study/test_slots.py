"""A stale-attempt slot, opened: what it shows is what the results file holds, escaped, and no more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup
from running import rewritten

from crossmem import streams
from crossmem.analysis import metrics, slots
from crossmem.errors import InputError
from crossmem.harness.results import Run
from crossmem.settings import KNOWN

from .rows import rows

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Scripted

BASE_FLOUR, NEXT_FLOUR = "Kembrovast TL 38", "Zelmarick HD 52"


@pytest.fixture(scope="session")
def m1(scripted: Scripted) -> Run:
    return scripted("phase3")


@pytest.fixture(scope="session")
def v2(scripted: Scripted) -> Run:
    return scripted("phase2", pattern="v2")


def one(run: Run, epoch: int, arm: str) -> slots.Slot:
    (slot,) = slots.opened(run, epoch, arm).slots
    return slot


def page(shown: slots.Folds) -> BeautifulSoup:
    return BeautifulSoup(shown._repr_html_(), "html.parser")


# -- what it shows ---------------------------------------------------------------------------------


def test_a_stale_slot_of_a2_read_from_top_to_bottom(v2: Run) -> None:
    slot = one(v2, 1, "A2")
    assert slot.title == "Epoch 1, A2: stale attempt at episode 16 (flour), 2 attempts"
    (held,) = slot.recalled
    assert (held["value"], held["version"], held["worth"]) == (BASE_FLOUR, "1.0.0", "stale")
    assert held["words"] == "brand of 'flour' in celiac recipes"
    first, second = slot.steps
    assert [text.strip(' ",') for kind, text in first.lines if kind == "new"] == [
        f'brand": "{BASE_FLOUR}'
    ]
    assert not [text for kind, text in first.lines if kind == "gone"]
    (fix,) = first.attempt.suggestions
    assert (fix.field, fix.suggested_value) == ("/ingredients/0/brand", NEXT_FLOUR)
    assert first.attempt.stamps == {"celiac_brands": "2.0.0"}
    assert [(kind, text.strip(' ",')) for kind, text in second.lines if kind != "same"] == [
        ("gone", f'brand": "{BASE_FLOUR}'),
        ("new", f'brand": "{NEXT_FLOUR}'),
    ]
    assert (second.attempt.status, second.attempt.suggestions) == (200, ())
    assert [event.kind for event in slot.events] == ["invalidate", "invalidate", "relearn"]
    assert slot.later is not None
    assert (slot.later.index, slot.later.drift_row) == (20, "flour")


def test_a_slot_is_made_of_the_rows_attempts_and_events_of_the_file(m1: Run) -> None:
    shown = slots.folds(m1).slots
    assert [(slot.row.drift_epoch, slot.row.arm) for slot in shown] == [
        (epoch, line) for epoch in (1, 2, 3, 4) for line in KNOWN
    ]
    for slot in shown:
        record = m1.of(slot.row.arm)[slot.row.index]
        assert [step.attempt for step in slot.steps] == record.attempts
        assert slot.events == record.events
        assert f": {metrics.outcome_of(slot.row)} at episode {slot.row.index} " in slot.title
        assert len(slot.recalled) == slot.row.recalled
        assert slot.row.stale_attempt == ("stale" in [each["worth"] for each in slot.recalled])
        after = [
            row
            for row in rows(m1, slot.row.arm)
            if row.index > slot.row.index and row.drift_row == slot.row.drift_row
        ]
        assert slot.later == (after[0] if after else None)


def test_every_part_reaches_the_page(v2: Run) -> None:
    shown = page(slots.opened(v2, 1, "A2D"))
    assert [each.text for each in shown.select("h4")] == [
        "What memory held",
        "Attempt 1: sent",
        "Attempt 1: what came back",
        "Attempt 2: sent",
        "Attempt 2: what came back",
        "What the arm did about it",
        "What the next such episode did",
    ]
    cells = [cell.text for cell in shown.select("td")]
    assert cells == [
        "brand of 'flour' in celiac recipes",
        f'"{BASE_FLOUR}"',
        "celiac_brands",
        "1.0.0",
        "stale",
    ]
    assert [each.text.strip() for each in shown.select("pre ins")] == [
        f'"brand": "{BASE_FLOUR}",',
        f'"brand": "{NEXT_FLOUR}",',
    ]
    assert [each.text.strip() for each in shown.select("pre del")] == [f'"brand": "{BASE_FLOUR}",']
    assert [each.text for each in shown.select("li del, li ins")] == [
        f'"{BASE_FLOUR}"',
        f'"{NEXT_FLOUR}"',
    ]
    text = re.sub(r"\s+", " ", shown.text)
    assert "Refused (422). Stamp: celiac_brands 2.0.0." in text
    assert "Accepted (200). Stamp: celiac_brands 2.0.0." in text
    assert "invalidate brand, flour" in text
    assert "the diff removed or changed it" in text
    assert "restamp celiac_brands (1.0.0 to 2.0.0)" in text
    assert "Episode 20 (flour): first try, 1 attempt." in text


def test_an_arm_without_memory_shows_that_it_held_and_did_nothing(v2: Run) -> None:
    text = page(slots.opened(v2, 1, "A0")).text
    assert "Nothing that matches this task." in text
    slot = one(v2, 1, "A0")
    assert metrics.outcome_of(slot.row) == "cold retry"
    assert {kind for kind, _ in slot.steps[0].lines} == {"same"}
    assert {event.kind for event in slot.events} <= {"refuse"}


def test_an_entry_put_before_the_agent_but_not_sent_is_not_said_to_be_stale(
    scripted: Scripted,
) -> None:
    slot = one(scripted("phase2", model="sonnet", hint_style="append"), 1, "A2")
    assert [each["worth"] for each in slot.recalled] == ["not carried"]
    assert metrics.outcome_of(slot.row) == "cold retry"


def test_of_several_values_of_a_key_only_the_one_sent_is_judged(scripted: Scripted) -> None:
    slot = one(scripted("phase3"), 4, "A1")
    worth = [each["worth"] for each in slot.recalled]
    assert len(worth) > 1
    assert worth[:-1] == ["not carried"] * (len(worth) - 1)
    assert worth[-1] == "stale"


def test_an_equal_value_under_another_key_is_judged_by_itself(v2: Run, tmp_path: Path) -> None:
    def beside(episode: dict[str, Any]) -> None:
        if (episode["row"]["arm"], episode["row"]["index"]) == ("A2", 16):
            (entry,) = episode["attempts"][0]["recalled"]
            episode["attempts"][0]["recalled"].append({**entry, "key": ["name", "salt", "home style"]})

    slot = one(rewritten(v2, tmp_path / v2.path.name, beside), 1, "A2")
    assert [each["worth"] for each in slot.recalled] == ["stale", "not carried"]


def test_replicates_other_than_the_first_can_be_opened(scripted: Scripted) -> None:
    run = scripted("phase2", arms="A0,A2", replicates=2)
    (slot,) = slots.opened(run, 1, "A2", replicate=1).slots
    assert slot.row.replicate == 1
    assert {each.row.replicate for each in slots.folds(run).slots} == {0}


# -- what it must not show -------------------------------------------------------------------------

HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=alert(1)> & \"quoted\""


def test_hostile_text_is_text(v2: Run, tmp_path: Path) -> None:
    """Whatever stood in a request, a response or an event, it opens no tag."""

    def poison(value: Any) -> Any:
        match value:
            case str():
                return HOSTILE if value in {BASE_FLOUR, NEXT_FLOUR, "flour", "salt"} else value
            case dict():
                return {name: poison(each) for name, each in value.items()}
            case list():
                return [poison(each) for each in value]
        return value

    def poisoned(episode: dict[str, Any]) -> None:
        for part in ("attempts", "events"):
            episode[part] = poison(episode[part])
        for event in episode["events"]:
            event["why"] = HOSTILE
        for attempt in episode["attempts"]:
            attempt["stamps"] = {HOSTILE: HOSTILE}
            for suggestion in attempt["suggestions"]:
                suggestion["action"] = HOSTILE

    run = rewritten(v2, tmp_path / v2.path.name, poisoned)
    shown = page(slots.folds(run))
    assert {each.name for each in shown.find_all()} == {
        *("details", "summary", "h4", "p", "pre", "ins", "del", "ul", "li", "code"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    }
    assert "<script>" in shown.text
    assert {name for each in shown.find_all() for name in each.attrs} <= {"class"}


def test_a_stream_that_has_changed_since_is_not_used(
    v2: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its Input Data is not that of the run: the request is shown, and nothing is marked as new."""
    whole = one(v2, 1, "A2")
    stream = streams.load("phase2_v2")
    other = stream.episodes[16].model_copy(
        update={"task": stream.episodes[16].task.model_copy(update={"input": {"recipe": "other"}})}
    )
    episodes = [*stream.episodes[:16], other, *stream.episodes[17:]]
    monkeypatch.setattr(streams, "load", lambda _: stream.model_copy(update={"episodes": episodes}))
    slot = one(v2, 1, "A2")
    assert {kind for kind, _ in slot.steps[0].lines} == {"same"}
    assert [text for _, text in slot.steps[0].lines] == [
        text for kind, text in whole.steps[0].lines if kind != "gone"
    ]
    assert slot.steps[1].lines == whole.steps[1].lines
    assert slot.recalled == whole.recalled
    assert slot.events == whole.events


def test_a_stream_that_is_gone_is_not_missed(v2: Run, tmp_path: Path) -> None:
    slot = one(rewritten(v2, tmp_path / v2.path.name, stream="no such stream"), 1, "A2")
    assert {kind for kind, _ in slot.steps[0].lines} == {"same"}


def test_an_attempt_that_sent_nothing_says_why(v2: Run, tmp_path: Path) -> None:
    def silent(episode: dict[str, Any]) -> None:
        if (episode["row"]["arm"], episode["row"]["index"]) == ("A2", 16):
            none = dict.fromkeys(("request", "status", "response"))
            episode["attempts"][1].update(none, error="the model gave no <request>")
            episode["attempts"][1].update(stamps={}, suggestions=[])

    run = rewritten(v2, tmp_path / v2.path.name, silent)
    text = page(slots.opened(run, 1, "A2")).text
    last = text[text.index("Attempt 2: what came back") :]
    assert "Nothing: the model gave no <request>." in last
    assert "Refused" not in last
    assert "Accepted" not in last


# -- bad input -------------------------------------------------------------------------------------


def test_an_epoch_or_arm_without_a_slot_is_refused_with_the_choices(v2: Run, m1: Run) -> None:
    with pytest.raises(InputError, match=r"^unknown epoch 3; Choices: 1$"):
        slots.opened(v2, 3, "A2")
    with pytest.raises(InputError, match=r"^unknown epoch 0; Choices: 1, 2, 3, 4$"):
        slots.opened(m1, 0, "A2")
    with pytest.raises(
        InputError, match=r"unknown arm 'A9'; did you mean .* Choices: A0, A1, .*oracle"
    ):
        slots.opened(v2, 1, "A9")


def test_a_run_without_a_drift_has_no_slot(v2: Run, tmp_path: Path) -> None:
    def calm(episode: dict[str, Any]) -> None:
        episode["row"]["drift_epoch"] = 0

    run = rewritten(v2, tmp_path / v2.path.name, calm)
    assert slots.folds(run).slots == []
    assert "there is no slot" in slots.folds(run)._repr_html_()
    with pytest.raises(InputError, match="has no stale-attempt slot: nothing drifted in it"):
        slots.opened(run, 1, "A2")


def test_one_slot_is_opened_and_all_are_folded(v2: Run) -> None:
    (shown,) = page(slots.opened(v2, 1, "A2")).select("details")
    assert shown.has_attr("open")
    folded = page(slots.folds(v2)).select("details")
    assert [each.has_attr("open") for each in folded] == [False] * len(KNOWN)
    assert [each.summary.text for each in folded if each.summary] == repr(slots.folds(v2)).splitlines()
