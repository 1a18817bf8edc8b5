"""What ran, said before any figure: which agent, what is doubtful, why there is no interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from crossmem.agents.scripted import same_as_haiku
from crossmem.analysis.display import Prose, joined
from crossmem.harness.config import diff_source
from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    from crossmem.harness.results import Run

MIME = "application/vnd.crossmem.runs+json"
"""The type of a cell's output that holds `{"runs": [...]}`, an `About` each; nothing shows it."""


class About(BaseModel):
    """One run as a list of reports knows it; what its config lacks is None or empty."""

    scripted: bool
    model: str
    phase: str | None = None
    stream: str | None = None
    pattern: str | None = None
    arms: list[str] = []
    started: str | None = None
    ended: str | None = None
    parameters: dict[str, Any] = {}


def notice(*runs: Run) -> Prose:
    """Say what kind of agent the figures come from, and why there are no intervals, if so."""
    from crossmem.analysis import stats

    models = joined(sorted({run.config["parameters"]["model"] for run in runs}))
    origin, kind = f"Measured with the model {models}.", "notice"
    if runs[0].scripted:
        kind = "notice scripted"
        origin = (
            f"Every figure here comes from a scripted agent (profile {models}), not from a language "
            "model. The server, the table swaps, the prompts and the memory are real; tokens are "
            "estimated from the prompts a live agent would send."
        )
    sentences = [origin, *dict.fromkeys(filter(None, map(_profile, runs)))]
    sentences += [doubt for run in runs for doubt in _doubts_of_api(run)]
    if not runs[0].scripted:
        sentences += [doubt for run in runs for doubt in _preflight_warnings(run)]
        sentences += filter(None, map(_other_models, runs))
        sentences += filter(None, map(_missing_usage, runs))
    sentences += filter(None, dict.fromkeys(map(stats.why_none, runs)))
    return Prose(tuple(sentences), kind, {MIME: {"runs": [_about(run).model_dump() for run in runs]}})


def _profile(run: Run) -> str:
    chosen = run.config["parameters"]
    return same_as_haiku(chosen["model"], chosen["hint_style"]) if run.scripted else ""


def _about(run: Run) -> About:
    served = (run.config.get("model") or {}).get("id")  # None for the scripted agent
    return About(
        scripted=run.scripted,
        model=served or run.config["parameters"]["model"],
        arms=[arm for arm in run.arms if arm not in REFERENCES],
        parameters=run.config["parameters"],
        **{name: run.config.get(name) for name in ("phase", "stream", "pattern", "started", "ended")},
    )


def _preflight_warnings(run: Run) -> list[str]:
    warnings = [each for probe in run.config["preflight"] or [] for each in probe["warnings"]]
    return [f"Preflight of {run.path.name}: {warning}." for warning in warnings]


def _other_models(run: Run) -> str | None:
    """Say which models served a run beside the one that its preflight met."""
    met = {probe["served_model"] for probe in run.config["preflight"] or []}
    attempts = (attempt for each in run.episodes for attempt in each.attempts)
    served = [attempt.evidence["model"] for attempt in attempts if attempt.evidence]
    others = [str(model) for model in served if model not in met]
    if not met or not others:
        return None
    names = joined(sorted(set(others)))
    return f"{run.path.name}: {len(others)} of {len(served)} answers came from {names}."


def _missing_usage(run: Run) -> str | None:
    """Say of how many answers the provider did not report the tokens, which then count as none."""
    attempts = (attempt for each in run.episodes for attempt in each.attempts)
    told = [attempt.evidence.get("usage") for attempt in attempts if attempt.evidence]
    missing = told.count("missing")
    if not missing:
        return None
    return (
        f"{run.path.name}: {missing} of {len(told)} answers came without usage; their tokens are not "
        "known and count as none."
    )


def _doubts_of_api(run: Run) -> list[str]:
    """Say what a reader must know of an API that is a checkout."""
    api = run.config["api"]
    if api["source"] == "embedded":
        return []
    at = api["branch"] or ", ".join(api["tags"]) or "no branch"
    changed = ", with uncommitted changes" if api["dirty"] else ""
    commit = (api["commit"] or "no commit")[:12]
    doubts = [f"The API is a checkout, {api['path']} at {at} ({commit}{changed})."]
    doubts += [f"Checkout: {warning}." for warning in api["warnings"]]
    diffs = {
        "harness": "no structured diff: what A2D was handed, the harness computed",
        "both": "a structured diff of some tables only: the others that A2D was handed, the harness "
        "computed",
    }.get(diff_source(run) or "")
    return [*doubts, f"Its reload gives {diffs}."] if diffs else doubts
