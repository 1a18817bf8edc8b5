"""What to know before any figure: scripted or measured, what is doubtful, and why no interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmem.analysis import stats
from crossmem.analysis.about import MIME, about
from crossmem.analysis.prose import Prose, joined
from crossmem.harness.config import diff_source

if TYPE_CHECKING:
    from crossmem.harness.results import Run


def notice(*runs: Run) -> Prose:
    """Say what kind of agent the figures come from, and why there are no intervals, if so."""
    run, data = runs[0], {MIME: about(runs)}
    models = joined(sorted({each.config["parameters"]["model"] for each in runs}))
    why = tuple(filter(None, dict.fromkeys(map(stats.why_none, runs))))
    doubts = [doubt for each in runs for doubt in _doubts_of_api(each)]
    if not run.scripted:
        doubts += [
            f"Preflight of {each.path.name}: {warning}."
            for each in runs
            for probe in each.config["preflight"] or []
            for warning in probe["warnings"]
        ]
        doubts += filter(None, map(_other_models, runs))
        return Prose((f"Measured with the model {models}.", *doubts, *why), "notice", data)
    origin = (
        f"Every figure here comes from a scripted agent (profile {models}), not from a language model. "
        "The server, the table swaps, the prompts and the memory are real; tokens are estimated from "
        "the prompts a live agent would send."
    )
    return Prose((origin, *doubts, *why), "notice scripted", data)


def _other_models(run: Run) -> str | None:
    """Say which models served a run beside the one that its preflight met."""
    met = {probe["served_model"] for probe in run.config["preflight"] or []}
    served = [
        attempt.evidence["model"]
        for each in run.episodes
        for attempt in each.attempts
        if attempt.evidence
    ]
    others = sorted({str(model) for model in served if model not in met}) if met else []
    if not others:
        return None
    number = sum(model not in met for model in served)
    return f"{run.path.name}: {number} of {len(served)} answers came from {joined(others)}."


def _doubts_of_api(run: Run) -> list[str]:
    """Say what a reader must know of an API that is a checkout."""
    api = run.config["api"]
    if api["source"] == "embedded":
        return []
    at = api["branch"] or ", ".join(api["tags"]) or "no branch"
    changed = ", with uncommitted changes" if api["dirty"] else ""
    commit = (api["commit"] or "no commit")[:12]
    said = [f"The API is a checkout, {api['path']} at {at} ({commit}{changed})."]
    said += [f"Checkout: {warning}." for warning in api["warnings"]]
    if (whose := diff_source(run)) in {"harness", "both"}:
        gives = "no structured diff" if whose == "harness" else "a structured diff of some tables only"
        computed = "what A2D was handed" if whose == "harness" else "the others that A2D was handed"
        said.append(f"Its reload gives {gives}: {computed}, the harness computed.")
    return said
