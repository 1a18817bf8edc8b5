"""The sentences of a finding are those that the rows give, whatever arms and keyings there are."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from crossmem.analysis import figures, findings, metrics, notices
from crossmem.analysis.display import Prose, count, joined
from crossmem.analysis.ranking import ranked_as
from crossmem.domains import domain
from crossmem.harness.results import Run
from crossmem.memory.arms import ARMS

from .rows import WORLDS, best, events, only, rows, totals, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from crossmem.harness.records import Row

    from .conftest import Scripted

FULL_WORLDS = [name for name in WORLDS if not name.startswith("phase1")]


@pytest.fixture(params=FULL_WORLDS)
def run(request: pytest.FixtureRequest, scripted: Scripted) -> Run:
    return world(scripted, request.param)


def sentence(run: Run, start: str) -> str | None:
    """The one sentence that starts so, None if there is none."""
    matching = [each for each in findings.finding(run).sentences if each.startswith(start)]
    assert len(matching) <= 1
    return matching[0] if matching else None


def named(text: str) -> list[str]:
    """The arms that a phrase names, in order."""
    return re.findall(r"\b(?:A\d[FCDV]?|LWG?|oracle|bound)\b", text)


def counted(run: Run, line: str, of: Callable[[Row], object], *, after: int = -1) -> int:
    return sum(bool(of(row)) for row in rows(run, line) if row.drift_epoch > after)


def full(arm: str) -> str:
    return f"{arm} ({ARMS[arm].title})"


def things(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)


def saved_by_half(run: Run) -> dict[str, int]:
    """Attempts of A2 minus attempts of A2D where they differ, by half or by family without one."""
    saved: dict[str, int] = {}
    for ours, theirs in zip(rows(run, "A2D"), rows(run, "A2"), strict=True):
        half = ours.drift_row or f"{ours.family} tasks"
        saved[half] = saved.get(half, 0) + theirs.attempts - ours.attempts
    return {half: saved[half] for half in sorted(saved, key=lambda h: ("tasks" in h, h)) if saved[half]}


def listed(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


BOUGHT: dict[str, Callable[[Row], int]] = {
    "attempt": lambda row: row.attempts,
    "stale attempt": lambda row: row.stale_attempt,
    "outdated use": lambda row: row.outdated_use,
}


def bought(run: Run, arm: str) -> str:
    parts = []
    for thing, of in BOUGHT.items():
        fewer = sum(map(of, rows(run, "LWG"))) - sum(map(of, rows(run, arm)))
        if fewer:
            parts.append(f"{'saved' if fewer > 0 else 'cost'} {things(abs(fewer), thing)}")
        elif thing == "attempt":
            parts.append("bought no attempts")
    return joined(parts)


def near(attempts: dict[str, int], fewest: int) -> str:
    close = [arm for arm in ARMS if attempts[arm] == fewest + 1]
    return f" ({joined(close)} within one attempt of it)" if close else ""


def sentences_of(run: Run) -> Iterator[str]:
    """What the rows give, counted one by one."""
    attempts = totals(run)
    fewest = min(attempts[arm] for arm in ARMS)
    yield (
        f"Over {run.length} episodes {joined(full(arm) for arm in run.arms if arm in best(run))} "
        f"needed the fewest attempts: {fewest}{near(attempts, fewest)}, {attempts['A0'] - fewest} "
        f"fewer than an agent without memory; perfect invalidation would need {attempts['oracle']} "
        f"(oracle); perfect update would need {attempts['bound']} (bound)."
    )
    stale = {arm: counted(run, arm, lambda row: row.stale_attempt, after=0) for arm in ARMS}
    paid = (
        f"{joined(arm for arm in ARMS if stale[arm] == number)} paid {number or 'none'}"
        for number in sorted(set(stale.values()), reverse=True)
    )
    yield f"Stale attempts after the first drift: {'; '.join(paid)}."
    saved = attempts["A2"] - attempts["A2D"]
    by_half = saved_by_half(run)
    if saved:
        halves = sorted({row.drift_row for row in rows(run, "A2") if row.drift_row})
        gain = [half for half in halves if by_half.get(half, 0) > 0]
        shows = "on every half of the table" if gain == halves else f"in {joined(gain)} alone"
        induced = [
            f" {by_half[f'{family} tasks']} of them are harness-induced: they come from {cause}."
            for family, cause in domain(run.config["domain"]).harness_induced.items()
        ]
        yield (
            f"The granularity dividend, attempts that A2D saves over A2, is {saved} "
            f"({listed(by_half)}).{''.join(induced)} It shows {shows}."
        )
    else:
        yield "A2D (diff-aware) against A2 (governed): no granularity dividend in attempts."
    gaps = {arm: attempts[arm] - attempts["A2"] for arm in ("A1", "A1F", "LW", "LWG")}
    beside = [
        f"{full(arm)} needed "
        + (f"{things(abs(gap), 'attempt')} {'more' if gap > 0 else 'fewer'} than" if gap else equal)
        + " A2 (governed)"
        for equal in ["exactly as many attempts as"]
        for arm, gap in gaps.items()
        if abs(gap) != 1
    ]
    if close := [f"{arm} {attempts[arm]}" for arm, gap in gaps.items() if abs(gap) == 1]:
        verb = "is" if len(close) == 1 else "are"
        beside.append(
            f"{joined(close)} {verb} within one attempt of A2 (governed) {attempts['A2']}, too close "
            "to call on one stream"
        )
    yield "; ".join(beside) + "."
    dropped = {arm: len(events(run, arm, "invalidate")) for arm in ("A2", "A2D")}
    if gaps["A1F"] < 0:
        yield (
            f"A2 needed more attempts than A1F because it drops whole tables: {dropped['A2']} entries "
            f"at the bumps, where A2D, which drops only what changed, dropped {dropped['A2D']}. What "
            "still held had to be learned again."
        )
    yield (
        "LWG admits exactly what the governed arms admit and never invalidates. Measured against it, "
        f"the invalidation of A2 (governed) {bought(run, 'A2')}; that of A2D (diff-aware) "
        f"{bought(run, 'A2D')}."
    )
    if run.config["pattern"] == "churn":
        yield (
            "No remembered value went stale: the version moved and what was remembered still held. "
            f"False invalidation cost A2 {dropped['A2']} good entries and "
            f"{things(-gaps['LWG'], 'attempt')}; A2D, which reads the diff, lost "
            f"{things(attempts['A2D'] - attempts['LWG'], 'attempt')}."
        )
    if run.config["pattern"] == "silent":
        again = [row for row in rows(run, "A2") if row.index > 16 and row.drift_row == "flour"]
        heals = (
            "under this keying the lesson lands under another key, and it never heals"
            if any(row.stale_attempt for row in again)
            else "each key heals by being learned again"
        )
        yield (
            "The rows changed under an unchanged stamp, so no governed arm noticed by stamp: trusting "
            f"stamps cost A2 {things(stale['A2'], 'stale attempt')}; {heals}."
        )
    if run.config["domain"] == "recipe":
        poisoned = {arm: counted(run, arm, lambda row: row.poisoned) for arm in ("A1", "A1F", "LW")}
        yield (
            "A1, A1F and LW stored values that belong to one request alone and sent them with another, "
            f"in poisoned attempts: {listed(poisoned)}."
        )


def test_the_sentences_are_those_that_the_rows_give_and_no_others(run: Run) -> None:
    assert [*findings.finding(run).sentences] == [*sentences_of(run)]


def test_what_the_sentence_on_invalidation_compares_differs_in_invalidation_alone(run: Run) -> None:
    policies = {arm["name"]: arm for arm in run.config["arms"]}
    for part in ("admission", "conflict"):
        assert policies["LWG"][part] == policies["A2"][part] == policies["A2D"][part]
    assert policies["LWG"]["invalidation"] == "invalidate_never"


@pytest.mark.parametrize(("against", "cost"), [("A2", 0), ("A0", 11)])
def test_an_a2d_that_saves_nothing_is_said_to_and_what_it_cost(
    against: str, cost: int, scripted: Scripted
) -> None:
    """The rows of A2D are another arm's, so that they are as good as A2's, or worse."""
    run = scripted("phase2", pattern="v2")
    others = [each for each in run.episodes if each.row.arm != "A2D"]
    theirs = [
        each.model_copy(update={"row": each.row.model_copy(update={"arm": "A2D"})})
        for each in run.of(against)
    ]
    worse = Run(run.path, run.config, others + theirs)
    assert totals(worse)["A2D"] - totals(worse)["A2"] == cost
    halves = {half: -by for half, by in saved_by_half(worse).items()}
    none = "A2D (diff-aware) against A2 (governed): no granularity dividend in attempts"
    expected = f"{none} and cost {cost} ({listed(halves)})." if cost else f"{none}."
    assert sentence(worse, "A2D (diff-aware) against A2") == expected
    assert sentence(worse, "The granularity dividend") is None


@pytest.mark.parametrize("arms", ["A0,A2", "A2D,LWG", "LWG"])
def test_without_both_arms_there_is_no_dividend_but_words(arms: str, scripted: Scripted) -> None:
    run = only(scripted("phase2"), arms)
    assert metrics.dividend(run).empty
    words = figures.dividend(run)
    assert isinstance(words, Prose)
    assert words.kind == "notice"
    assert named(str(words)) == ["A2", "A2D"]
    assert "dividend" not in str(findings.finding(run))


def test_the_headline_is_counted_from_the_rows(run: Run) -> None:
    after = {line: [row for row in rows(run, line) if row.drift_epoch] for line in run.arms}
    stale = {line: sum(row.stale_attempt for row in mine) for line, mine in after.items()}
    cost = {
        line: count(sum(row.total_tokens for row in mine) / sum(row.success for row in mine))
        for line, mine in after.items()
    }
    assert findings.headline(run) == [
        f"attempts over {run.length} episodes: {listed(totals(run))}",
        f"stale attempts after the first drift: {listed(stale)}",
        "tokens per success after the first drift: "
        + ", ".join(f"{line} {number}" for line, number in cost.items()),
    ]


def test_the_notice_says_that_no_model_was_asked(run: Run) -> None:
    notice = notices.notice(run)
    assert notice.kind == "notice scripted"
    assert "scripted agent (profile haiku), not from a language model" in str(notice)
    assert "No interval is given" in str(notice)
    assert findings.intervals(run) is None, "the notice says why"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (2.5, "2.5"), (99.9, "99.9"), (99.96, "100"), (100.4, "100"), (1234.5, "1,234")],
)
def test_a_count_has_no_decimals_from_a_hundred_on(value: float, written: str) -> None:
    assert count(value) == written


# -- a stream without drift ------------------------------------------------------------------------


def test_refunds_are_a_matter_of_successes_and_nothing_is_said_of_drift(scripted: Scripted) -> None:
    run = scripted("acme", stream="acme_refunds")
    spent = {line: sum(row.total_tokens for row in rows(run, line)) for line in run.arms}
    succeeded = {line: counted(run, line, lambda row: row.success) for line in run.arms}
    cost = (f"{line} {count(spent[line] / succeeded[line])}" for line in run.arms)
    assert findings.headline(run) == [
        f"attempts over 12 episodes: {listed(totals(run))}",
        f"successes: {listed(succeeded)}",
        f"tokens per success: {', '.join(cost)}",
    ]
    failures = {line: 12 - number for line, number in succeeded.items()}
    assert set(failures.values()) == {4}
    first, failed = findings.finding(run).sentences
    assert first == next(sentences_of(run))
    assert failed == f"Not every episode succeeded. Failed: {listed(failures)}."


# -- memory that is not heeded ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
def test_under_append_sonnet_is_said_to_have_ignored_its_memory_and_nothing_else(
    pattern: str, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern=pattern, model="sonnet", hint_style="append")
    assert str(findings.finding(run)) == (
        "Memory was put before the agent and changed nothing: under the hint style append no "
        "remembered value was sent. Attempts over 24 episodes: "
        f"{listed(dict.fromkeys(ARMS, 46))}."
    )


# -- other selections of arms ----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
@pytest.mark.parametrize("arms", ["A2,A2D", "A0", "LWG", "A0,A3", "A1,A2V", "LWG,A2C", "A3,A0,LW"])
def test_with_arms_missing_nothing_is_said_of_them(arms: str, pattern: str, scripted: Scripted) -> None:
    run = only(scripted("phase2", pattern=pattern), arms)
    asked = {*arms.split(",")}
    texts = [*findings.headline(run), *findings.finding(run).sentences, findings.done(run)]
    for text in texts:
        assert set(named(text)) <= asked, text
        assert not re.search(r"\b(nan|inf|None)\b", text), text
        assert "  " not in text
    fewest = min(totals(run).values())
    assert str(fewest) in (sentence(run, "Over ") or "")


@pytest.mark.parametrize("arm", ["A0", "LWG"])
def test_one_arm_alone_is_not_said_to_be_the_best(arm: str, scripted: Scripted) -> None:
    run = only(scripted("phase2"), arm)
    assert sentence(run, "Over ") == f"Over 24 episodes {arm} {totals(run)[arm]} attempts."


@pytest.mark.parametrize("lines", ["oracle", "bound", "oracle,bound"])
def test_reference_lines_alone_are_told_and_ranked_by_nobody(
    lines: str, results: Path, scripted: Scripted
) -> None:
    run = only(scripted("phase2"), lines)
    results.mkdir()
    shutil.copy(run.path, results)
    numbers = listed(totals(run))
    assert sentence(run, "Over ") == f"Over 24 episodes {numbers} attempts."
    assert numbers in findings.done(run)
    assert len(findings.finding(run).sentences) == 1
    assert "is open: no two of them are told apart" in str(ranked_as(run, "phase2"))


@pytest.mark.parametrize("arms", ["A0,A1F,A2,A2D,A3,LW,LWG", "A2,A2D,LWG", "A0,A2"])
def test_with_one_attempt_an_episode_nothing_crashes_and_no_text_is_broken(
    arms: str, scripted: Scripted
) -> None:
    run = only(scripted("phase2", max_attempts=1), arms)
    assert not all(row.success for row in rows(run, run.arms[0]))
    assert ("attempts rank no arm here" in findings.finding(run).sentences[0]) is ("A0" in arms)
    for text in (*findings.headline(run), *findings.finding(run).sentences):
        assert not re.search(r"\b(nan|inf|None)\b", text), text


def test_memory_that_turns_failures_into_successes_did_not_change_nothing(scripted: Scripted) -> None:
    """With one attempt an episode all arms send equally many requests, and differ in successes."""
    run = only(scripted("phase2", max_attempts=1), "A0,A2")
    succeeded = {arm: counted(run, arm, lambda row: row.success) for arm in ("A0", "A2")}
    assert succeeded["A2"] > succeeded["A0"]
    assert "changed nothing" not in str(findings.finding(run))


def test_an_agent_that_ignores_memory_is_so_described_without_a0_beside_it(scripted: Scripted) -> None:
    run = only(scripted("phase2", model="sonnet", hint_style="append"), "A2,A2D,LWG")
    said = str(findings.finding(run))
    assert "changed nothing" in said
    assert "oracle" not in said
