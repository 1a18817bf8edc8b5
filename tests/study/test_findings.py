"""Every sentence of a finding is true of the rows it stands over, whatever arms and keyings there are.

What a sentence claims is read out of its words and counted again from the rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from crossmem import findings
from crossmem.memory.arms import ARMS

from .rows import best, events, rows, totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossmem.records import Row
    from crossmem.results import Run

    from .conftest import Scripted

PATTERNS = ("v2", "v4", "churn", "silent", "rollback")
KEYINGS = ("task", "request")
WORLDS = [
    *(("phase2", pattern, keying) for pattern in PATTERNS for keying in KEYINGS),
    *(("phase3", "m1", keying) for keying in KEYINGS),
]


@pytest.fixture(params=WORLDS, ids="-".join)
def run(request: pytest.FixtureRequest, scripted: Scripted) -> Run:
    phase, pattern, keying = request.param
    return scripted(phase, pattern=pattern, keying=keying)


def sentence(run: Run, start: str) -> str | None:
    """The one sentence that starts so, None if there is none."""
    found = [each for each in findings.finding(run).sentences if re.match(start, each)]
    assert len(found) <= 1
    return found[0] if found else None


def named(text: str) -> list[str]:
    """The arms that a phrase names, in order."""
    return [each for each in re.findall(r"\b(?:A\d[NCDV]?|LWG?|oracle)\b", text) if each]


def number(text: str) -> int:
    return 0 if text == "none" else int(text)


def counted(run: Run, line: str, of: Callable[[Row], object], *, after: int = -1) -> int:
    return sum(bool(of(row)) for row in rows(run, line) if row.drift_epoch > after)


def test_who_needed_the_fewest_attempts(run: Run) -> None:
    said = sentence(run, "Over ")
    assert said is not None
    match = re.fullmatch(
        r"Over (\d+) episodes (.+) needed the fewest attempts: (\d+), (\d+) fewer than an agent "
        r"without memory; with perfect invalidation it would be (\d+)(?: as well|, (\d+) fewer)\.",
        said,
    )
    assert match, said
    episodes, arms, fewest, fewer, oracle, regret = match.groups()
    attempts = totals(run)
    assert int(episodes) == len(rows(run, "A0"))
    assert set(named(arms)) == best(run)
    assert int(fewest) == min(attempts[arm] for arm in ARMS)
    assert int(fewer) == attempts["A0"] - int(fewest)
    assert int(oracle) == attempts["oracle"]
    assert int(regret or 0) == int(fewest) - int(oracle)


def test_who_paid_how_many_stale_attempts(run: Run) -> None:
    said = sentence(run, "Stale attempts after the first drift: ")
    assert said is not None
    paid = {}
    for part in said.rstrip(".").split(": ", 1)[1].split("; "):
        arms, _, how_many = part.partition(" paid ")
        paid.update(dict.fromkeys(named(arms), number(how_many)))
    assert paid == {arm: counted(run, arm, lambda row: row.stale_attempt, after=0) for arm in ARMS}


def test_the_dividend_and_its_halves(run: Run) -> None:
    attempts = totals(run)
    saved = attempts["A2"] - attempts["A2D"]
    if saved == 0:
        said = sentence(run, r"A2D \(diff-aware\) needed exactly as many")
        assert said is not None
        assert "no granularity dividend" in said
        return
    said = sentence(run, "The granularity dividend")
    assert said is not None
    total, halves = re.fullmatch(r".* over A2, is (\d+) \((.+)\)\.", said).groups()  # type: ignore[union-attr]
    assert int(total) == saved
    for half, by in re.findall(r"(\w+) (\d+)", halves):
        assert int(by) == sum(
            theirs.attempts - ours.attempts
            for ours, theirs in zip(rows(run, "A2D"), rows(run, "A2"), strict=True)
            if ours.half == half
        )


def test_the_baselines_beside_a2(run: Run) -> None:
    said = sentence(run, r"A1 \(naive\) needed")
    assert said is not None
    attempts = totals(run)
    parts = said.rstrip(".").split("; ")
    assert [named(part)[0] for part in parts] == ["A1", "LW", "LWG"]
    for part in parts:
        arm, beside = named(part)
        assert beside == "A2"
        gap = attempts[arm] - attempts["A2"]
        words = f"{abs(gap)} attempt{'s' * (abs(gap) != 1)} {'more' if gap > 0 else 'fewer'} than"
        assert (words if gap else "exactly as many attempts as") in part


def test_why_a2_needs_more_attempts_than_a1_is_said_where_it_does_and_only_there(run: Run) -> None:
    said = sentence(run, "A2 needed more attempts than A1")
    attempts = totals(run)
    assert (said is not None) == (attempts["A2"] > attempts["A1"])
    if said is None:
        return
    dropped = {arm: len(events(run, arm, "invalidate")) for arm in ("A2", "A2D")}
    assert f": {dropped['A2']} entries at the bumps" in said
    assert f"dropped {dropped['A2D']}." in said
    assert dropped["A2"] > dropped["A2D"]


def test_what_invalidation_bought(run: Run) -> None:
    said = sentence(run, "LWG admits exactly")
    assert said is not None
    attempts = totals(run)
    for arm, bought in re.findall(r"(?:invalidation|that) of (A2D?) \([\w-]+\) bought ([^;.]+)", said):
        gap = attempts["LWG"] - attempts[arm]
        if gap > 0:
            assert bought.startswith(f"{gap} attempt"), said
        else:
            assert bought.startswith("no attempts"), said
            cost = re.search(r"\(it cost (\d+)\)", bought)
            assert (int(cost[1]) if cost else 0) == -gap, said
        stale, outdated = (
            counted(run, "LWG", of) - counted(run, arm, of)
            for of in (lambda row: row.stale_attempt, lambda row: row.outdated_use)
        )
        if stale > 0:
            assert re.search(rf"\b{stale} stale attempts? fewer", bought), said
        elif outdated > 0:
            assert re.search(rf"\b{outdated} outdated uses? fewer", bought), said
        else:
            assert "fewer" not in bought, said
    policies = {arm["name"]: arm for arm in run.config["arms"]}
    for part in ("admission", "conflict"):
        assert policies["LWG"][part] == policies["A2"][part] == policies["A2D"][part]
    assert policies["LWG"]["invalidation"] == "invalidate_never"


def test_false_invalidation_is_said_where_nothing_went_stale_and_only_there(run: Run) -> None:
    said = sentence(run, "No remembered value went stale")
    assert (said is not None) == (run.config["pattern"] == "churn")
    if said is None:
        return
    assert not any(row.stale_attempt for row in run.results.rows)
    attempts = totals(run)
    entries, cost = re.search(r"cost A2 (\d+) good entries and (\d+) attempts", said).groups()  # type: ignore[union-attr]
    assert int(entries) == len(events(run, "A2", "invalidate"))
    assert int(cost) == attempts["A2"] - attempts["LWG"]
    assert f"lost {attempts['A2D'] - attempts['LWG']} attempts" in said


def test_what_trusting_stamps_cost_is_said_where_rows_changed_silently_and_only_there(run: Run) -> None:
    said = sentence(run, "The rows changed under an unchanged stamp")
    assert (said is not None) == (run.config["pattern"] == "silent")
    if said is None:
        return
    stale = [row.index for row in rows(run, "A2") if row.stale_attempt]
    assert f"cost A2 {len(stale)} stale attempts" in said
    again = [row for row in rows(run, "A2") if row.index > stale[0] and row.half == "flour"]
    heals = not any(row.stale_attempt for row in again)
    assert ("heals by being learned again" in said) == heals
    assert ("never heals" in said) != heals


def test_who_was_poisoned_and_how_often(run: Run) -> None:
    said = sentence(run, ".* stored values that belong to one request")
    assert said is not None
    listed = dict(re.findall(r"(\w+) (\d+)", said.rsplit(": ", 1)[1]))
    hit = {arm: counted(run, arm, lambda row: row.poisoned) for arm in (*ARMS, "oracle")}
    assert {arm: int(number) for arm, number in listed.items()} == {a: n for a, n in hit.items() if n}


def test_every_sentence_is_one_that_was_checked(run: Run) -> None:
    known = (
        "Over ",
        "Stale attempts after the first drift: ",
        r"A2D \(diff-aware\) needed exactly",
        "The granularity dividend",
        r"A1 \(naive\) needed",
        "A2 needed more attempts than A1",
        "LWG admits exactly",
        "No remembered value went stale",
        "The rows changed under an unchanged stamp",
        ".* stored values that belong to one request",
    )
    for said in findings.finding(run).sentences:
        assert sum(bool(re.match(start, said)) for start in known) == 1, said


def test_the_headline_is_counted_from_the_rows(run: Run) -> None:
    attempts, stale, tokens = findings.headline(run)
    assert attempts == f"attempts over {len(rows(run, 'A0'))} episodes: " + ", ".join(
        f"{line} {number}" for line, number in totals(run).items()
    )
    assert stale == "stale attempts after the drift: " + ", ".join(
        f"{line} {counted(run, line, lambda row: row.stale_attempt, after=0)}" for line in run.arms
    )
    for line in run.arms:
        after = [row for row in rows(run, line) if row.drift_epoch]
        expected = sum(row.total_tokens for row in after) / sum(row.success for row in after)
        said = re.search(rf"\b{line} ([\d,.]+)(?:,|$)", tokens.split(": ", 1)[1])
        assert said
        assert float(said[1].replace(",", "")) == pytest.approx(expected, abs=0.51)


def test_the_notice_says_that_no_model_was_asked(run: Run) -> None:
    notice = findings.notice(run)
    assert notice.kind == "notice scripted"
    assert "scripted agent (profile haiku), not from a language model" in str(notice)
    assert "No interval is given" in str(notice)


# -- memory that is not heeded ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
def test_under_append_sonnet_is_said_to_have_ignored_its_memory_and_nothing_else(
    pattern: str, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern=pattern, model="sonnet", hint_style="append")
    (said,) = findings.finding(run).sentences
    assert said.startswith("Memory was put before the agent and changed nothing: ")
    assert "hint style append" in said
    assert "A0 46, A1 46" in said


# -- other selections of arms ----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
@pytest.mark.parametrize("arms", ["A2,A2D", "A0", "LWG", "A0,A3", "A1N,A2V", "LWG,A2C", "A3,A0,LW"])
def test_with_arms_missing_nothing_is_said_of_them(arms: str, pattern: str, scripted: Scripted) -> None:
    run = scripted("phase2", pattern=pattern, arms=arms)
    asked = {*arms.split(","), "oracle"}
    texts = [*findings.headline(run), *findings.finding(run).sentences, findings.done(run)]
    for text in texts:
        assert set(named(text)) <= asked, text
        assert not re.search(r"\b(nan|inf|None)\b", text), text
        assert "  " not in text
    said = [each for each in findings.finding(run).sentences if each.startswith("Over ")]
    for each in said:
        assert str(min(totals(run)[arm] for arm in arms.split(","))) in each


@pytest.mark.parametrize("arms", ["A0,A1,A2,A2D,A3,LW,LWG", "A2,A2D,LWG", "A0,A2"])
def test_with_one_attempt_an_episode_nothing_crashes_and_no_text_is_broken(
    arms: str, scripted: Scripted
) -> None:
    run = scripted("phase2", max_attempts=1, arms=arms)
    assert not all(row.success for row in rows(run, run.arms[0]))
    for text in (*findings.headline(run), *findings.finding(run).sentences):
        assert not re.search(r"\b(nan|inf|None)\b", text), text


def test_memory_that_turns_failures_into_successes_did_not_change_nothing(scripted: Scripted) -> None:
    """With one attempt an episode all arms send equally many requests, and differ in successes."""
    run = scripted("phase2", max_attempts=1, arms="A0,A2")
    succeeded = {arm: counted(run, arm, lambda row: row.success) for arm in ("A0", "A2")}
    assert succeeded["A2"] > succeeded["A0"]
    assert "changed nothing" not in str(findings.finding(run))


def test_an_agent_that_ignores_memory_is_so_described_without_a0_beside_it(scripted: Scripted) -> None:
    run = scripted("phase2", model="sonnet", hint_style="append", arms="A2,A2D,LWG")
    said = str(findings.finding(run))
    assert "changed nothing" in said
    assert "perfect invalidation" not in said
