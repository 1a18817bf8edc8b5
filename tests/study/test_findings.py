"""Every sentence of a finding is true of the rows it stands over, whatever arms and keyings there are.

What a sentence claims is read out of its words and counted again from the rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from running import rows_of

from crossmem.analysis import figures, findings, metrics, notices
from crossmem.analysis.display import Prose, count
from crossmem.harness.results import Run
from crossmem.memory.arms import ARMS

from .rows import best, events, rows, totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossmem.harness.records import Row

    from .conftest import Scripted

PATTERNS = ("v2", "v4", "churn", "silent", "rollback")
KEYINGS = ("task", "request")
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"phase2-{pattern}-{keying}": ("phase2", {"pattern": pattern, "keying": keying})
        for pattern in PATTERNS
        for keying in KEYINGS
    },
    **{f"phase3-m1-{keying}": ("phase3", {"pattern": "m1", "keying": keying}) for keying in KEYINGS},
    **{stream: ("acme", {"stream": stream}) for stream in ("acme_m1", "acme_sanity")},
}


@pytest.fixture(params=WORLDS)
def run(request: pytest.FixtureRequest, scripted: Scripted) -> Run:
    phase, given = WORLDS[request.param]
    return scripted(phase, **given)


def sentence(run: Run, start: str) -> str | None:
    """The one sentence that starts so, None if there is none."""
    found = [each for each in findings.finding(run).sentences if re.match(start, each)]
    assert len(found) <= 1
    return found[0] if found else None


def named(text: str) -> list[str]:
    """The arms that a phrase names, in order."""
    return re.findall(r"\b(?:A\d[NCDV]?|LWG?|oracle)\b", text)


def listed_counts(listed: str) -> dict[str, int]:
    """What a list such as `oats 1, promo tasks 6` says of each thing."""
    return {thing: int(by) for thing, by in (each.rsplit(" ", 1) for each in listed.split(", "))}


def number(text: str) -> int:
    return 0 if text == "none" else int(text)


def counted(run: Run, line: str, of: Callable[[Row], object], *, after: int = -1) -> int:
    return sum(bool(of(row)) for row in rows(run, line) if row.drift_epoch > after)


def test_who_needed_the_fewest_attempts(run: Run) -> None:
    said = sentence(run, "Over ")
    assert said is not None
    match = re.fullmatch(
        r"Over (\d+) episodes (.+) needed the fewest attempts: (\d+), (\d+) fewer than an agent "
        r"without memory; the oracle needs (\d+)\.",
        said,
    )
    assert match, said
    episodes, arms, fewest, fewer, oracle = match.groups()
    attempts = totals(run)
    assert int(episodes) == len(rows(run, "A0"))
    assert set(named(arms)) == best(run)
    assert int(fewest) == min(attempts[arm] for arm in ARMS)
    assert int(fewer) == attempts["A0"] - int(fewest)
    assert int(oracle) == attempts["oracle"]


def test_who_paid_how_many_stale_attempts(run: Run) -> None:
    said = sentence(run, "Stale attempts after the first drift: ")
    assert said is not None
    paid = {}
    for part in said.rstrip(".").split(": ", 1)[1].split("; "):
        arms, _, how_many = part.partition(" paid ")
        paid.update(dict.fromkeys(named(arms), number(how_many)))
    assert paid == {arm: counted(run, arm, lambda row: row.stale_attempt, after=0) for arm in ARMS}


def saved_by_half(run: Run) -> dict[str, int]:
    """Attempts of A2 minus attempts of A2D where they differ, by half or by family without one."""
    saved: dict[str, int] = {}
    for ours, theirs in zip(rows(run, "A2D"), rows(run, "A2"), strict=True):
        half = ours.drift_row or f"{ours.family} tasks"
        saved[half] = saved.get(half, 0) + theirs.attempts - ours.attempts
    return {half: number for half, number in saved.items() if number}


def test_the_dividend_and_its_halves(run: Run) -> None:
    attempts = totals(run)
    saved = attempts["A2"] - attempts["A2D"]
    none = sentence(run, r"A2D \(diff-aware\) against A2")
    said = sentence(run, "The granularity dividend")
    assert (none is None) == (saved != 0)
    if not saved:
        assert said is None
        assert none == ("A2D (diff-aware) against A2 (governed): no granularity dividend in attempts.")
        return
    assert said is not None
    match = re.fullmatch(
        r"The granularity dividend, attempts that A2D saves over A2, is (\d+) \((.+?)\)\."
        r"(?: (\d+) of them are harness-induced: they come from the companion promo_eligibility .+)?",
        said,
    )
    assert match, said
    total, halves, induced = match.groups()
    by_half = saved_by_half(run)
    assert int(total) == saved
    assert listed_counts(halves) == by_half
    assert int(induced or 0) == by_half.get("promo tasks", 0)


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
    said = sentence(worse, r"A2D \(diff-aware\) against A2")
    assert said is not None
    assert sentence(worse, "The granularity dividend") is None
    none = "A2D (diff-aware) against A2 (governed): no granularity dividend in attempts"
    assert totals(worse)["A2D"] - totals(worse)["A2"] == cost
    if not cost:
        assert said == f"{none}."
        return
    match = re.fullmatch(re.escape(none) + r" and cost (\d+) \((.+)\)\.", said)
    assert match, said
    assert int(match[1]) == cost
    assert listed_counts(match[2]) == {half: -by for half, by in saved_by_half(worse).items()}


@pytest.mark.parametrize("arms", ["A0,A2", "A2D,LWG", "LWG"])
def test_without_both_arms_there_is_no_dividend_but_words(arms: str, scripted: Scripted) -> None:
    run = scripted("phase2", arms=arms)
    assert metrics.dividend(run).empty
    said = figures.dividend(run)
    assert isinstance(said, Prose)
    assert said.kind == "notice"
    assert named(str(said)) == ["A2", "A2D"]
    assert "dividend" not in str(findings.finding(run))


def test_the_baselines_beside_a2(run: Run) -> None:
    said = sentence(run, r"A1F \(naive\) needed")
    assert said is not None
    attempts = totals(run)
    parts = said.rstrip(".").split("; ")
    assert [named(part)[0] for part in parts] == ["A1F", "LW", "LWG"]
    for part in parts:
        arm, beside = named(part)
        assert beside == "A2"
        gap = attempts[arm] - attempts["A2"]
        words = f"{abs(gap)} attempt{'s' * (abs(gap) != 1)} {'more' if gap > 0 else 'fewer'} than"
        assert (words if gap else "exactly as many attempts as") in part


def test_why_a2_needs_more_attempts_than_a1_is_said_where_it_does_and_only_there(run: Run) -> None:
    said = sentence(run, "A2 needed more attempts than A1F")
    attempts = totals(run)
    assert (said is not None) == (attempts["A2"] > attempts["A1F"])
    if said is None:
        return
    dropped = {arm: len(events(run, arm, "invalidate")) for arm in ("A2", "A2D")}
    assert f": {dropped['A2']} entries at the bumps" in said
    assert f"dropped {dropped['A2D']}." in said
    assert dropped["A2"] > dropped["A2D"]


BOUGHT: dict[str, Callable[[Row], int]] = {
    "attempt": lambda row: row.attempts,
    "stale attempt": lambda row: row.stale_attempt,
    "outdated use": lambda row: row.outdated_use,
}


def test_what_invalidation_bought(run: Run) -> None:
    said = sentence(run, "LWG admits exactly")
    assert said is not None
    told = re.findall(r"(?:invalidation|that) of (A2D?) \([\w-]+\) ([^;.]+)", said)
    assert [arm for arm, _ in told] == ["A2", "A2D"]
    for arm, bought in told:
        expected = []
        for thing, of in BOUGHT.items():
            fewer = sum(map(of, rows(run, "LWG"))) - sum(map(of, rows(run, arm)))
            if fewer:
                things = f"{abs(fewer)} {thing}{'s' * (abs(fewer) != 1)}"
                expected.append(f"{'saved' if fewer > 0 else 'cost'} {things}")
            elif thing == "attempt":
                expected.append("bought no attempts")
        assert re.split(r", | and ", bought) == expected, said
    policies = {arm["name"]: arm for arm in run.config["arms"]}
    for part in ("admission", "conflict"):
        assert policies["LWG"][part] == policies["A2"][part] == policies["A2D"][part]
    assert policies["LWG"]["invalidation"] == "invalidate_never"


def test_false_invalidation_is_said_where_nothing_went_stale_and_only_there(run: Run) -> None:
    said = sentence(run, "No remembered value went stale")
    assert (said is not None) == (run.config["pattern"] == "churn")
    if said is None:
        return
    assert not any(row.stale_attempt for row in rows_of(run))
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
    again = [row for row in rows(run, "A2") if row.index > stale[0] and row.drift_row == "flour"]
    heals = not any(row.stale_attempt for row in again)
    assert ("heals by being learned again" in said) == heals
    assert ("never heals" in said) != heals


def test_who_was_poisoned_and_how_often(run: Run) -> None:
    said = sentence(run, ".* stored values that belong to one request")
    paid = {arm: counted(run, arm, lambda row: row.poisoned) for arm in (*ARMS, "oracle")}
    hit = {arm: number for arm, number in paid.items() if number}
    assert (said is not None) == bool(hit) == (run.config["domain"] == "recipe")
    if said is None:
        return
    who, listed = said.rstrip(".").split(" stored values ")
    assert set(named(who)) == set(hit)
    assert listed_counts(listed.rsplit(": ", 1)[1]) == hit


def test_every_sentence_is_one_that_was_checked(run: Run) -> None:
    known = (
        "Over ",
        "Stale attempts after the first drift: ",
        r"A2D \(diff-aware\) against A2 \(governed\): no granularity dividend",
        "The granularity dividend",
        r"A1F \(naive\) needed",
        "A2 needed more attempts than A1F",
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
    assert stale == "stale attempts after the first drift: " + ", ".join(
        f"{line} {counted(run, line, lambda row: row.stale_attempt, after=0)}" for line in run.arms
    )
    assert tokens.startswith("tokens per success after the first drift: ")
    for line in run.arms:
        after = [row for row in rows(run, line) if row.drift_epoch]
        expected = sum(row.total_tokens for row in after) / sum(row.success for row in after)
        said = re.search(rf"\b{line} ([\d,.]+)(?:,|$)", tokens.split(": ", 1)[1])
        assert said
        assert float(said[1].replace(",", "")) == pytest.approx(expected, abs=0.51)


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


def test_refunds_are_a_matter_of_successes_and_of_no_drift(scripted: Scripted) -> None:
    run = scripted("acme", stream="acme_refunds")
    attempts, successes, tokens = findings.headline(run)
    listed = ", ".join(f"{line} {number}" for line, number in totals(run).items())
    assert attempts == f"attempts over 12 episodes: {listed}"
    succeeded = {line: counted(run, line, lambda row: row.success) for line in run.arms}
    assert successes == "successes: " + ", ".join(f"{a} {n}" for a, n in succeeded.items())
    heading, _, listed = tokens.partition(": ")
    assert heading == "tokens per success"
    for line, said in re.findall(r"(\w+) ([\d,.]+)(?:, |$)", listed):
        spent = sum(row.total_tokens for row in rows(run, line))
        expected = spent / succeeded.pop(line)
        assert float(said.replace(",", "")) == pytest.approx(expected, abs=0.51)
    assert succeeded == {}


def test_refunds_that_failed_are_counted_and_nothing_is_said_of_drift(scripted: Scripted) -> None:
    run = scripted("acme", stream="acme_refunds")
    fewest, failed = findings.finding(run).sentences
    failures = {line: counted(run, line, lambda row: not row.success) for line in run.arms}
    assert set(failures.values()) == {4}
    start, _, listed = failed.rstrip(".").partition(". Failed: ")
    assert start == "Not every episode succeeded"
    assert listed_counts(listed) == failures
    attempts = totals(run)
    assert set(named(fewest.split(" needed ")[0])) == best(run)
    assert f"the fewest attempts: {attempts['A2']}, {attempts['A0'] - attempts['A2']} fewer" in fewest
    assert fewest.endswith(f"; the oracle needs {attempts['oracle']}.")
    for text in (*findings.headline(run), *findings.finding(run).sentences):
        assert not re.search("drift|stale|dividend|invalidat|bump", text), text


def test_the_acme_dividend_is_split_by_plan_and_policy_and_a_part_is_the_harness_s(
    scripted: Scripted,
) -> None:
    said = sentence(scripted("acme", stream="acme_m1"), "The granularity dividend")
    assert said is not None
    split, induced = said.split(". ", 1)
    assert listed_counts(split.split("(")[1].rstrip(")")) == {
        "partner": 1,
        "enterprise-pilot": 1,
        "promo tasks": 6,
    }
    assert " is 8 (" in split
    assert induced.startswith("6 of them are harness-induced: they come from the companion")


# -- memory that is not heeded ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
def test_under_append_sonnet_is_said_to_have_ignored_its_memory_and_nothing_else(
    pattern: str, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern=pattern, model="sonnet", hint_style="append")
    (said,) = findings.finding(run).sentences
    assert said.startswith("Memory was put before the agent and changed nothing: ")
    assert "hint style append" in said
    assert "A0 46, A1F 46" in said


# -- other selections of arms ----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["v2", "churn", "silent"])
@pytest.mark.parametrize("arms", ["A2,A2D", "A0", "LWG", "A0,A3", "A1,A2V", "LWG,A2C", "A3,A0,LW"])
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


@pytest.mark.parametrize("arm", ["A0", "LWG"])
def test_one_arm_alone_is_not_said_to_be_the_best(arm: str, scripted: Scripted) -> None:
    run = scripted("phase2", arms=arm)
    said = sentence(run, "Over ")
    assert said == f"Over 24 episodes {arm} {totals(run)[arm]} attempts."


@pytest.mark.parametrize("arms", ["A0,A1F,A2,A2D,A3,LW,LWG", "A2,A2D,LWG", "A0,A2"])
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
    assert "oracle" not in said
