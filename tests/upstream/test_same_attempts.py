"""The same contract served by somebody else's code gives the same attempts, whatever its words are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, run_phase

from crossmem.harness.config import diff_source

from .foreign import ACME, ODD, PACKAGE, PLAIN, SRC, Plan, facts

if TYPE_CHECKING:
    from .conftest import Builder

ALL = "A0,A1F,A1,LW,LWG,A2,A2C,A2D,A2V"
PHASE1 = {"A0": 46, "A1F": 37, "A1": 37, "LW": 37, "LWG": 35, "A2": 36, "A2C": 36, "A2D": 35}
V2 = {"A0": 46, "A1F": 37, "A1": 36, "LW": 36, "LWG": 34, "A2": 35, "A2C": 35, "A2D": 34, "A2V": 35}
V4 = {"A0": 46, "A1F": 39, "A1": 37, "LW": 37, "LWG": 35, "A2": 35, "A2C": 35, "A2D": 35, "A2V": 35}
SANITY = {"A0": 48, "A1F": 33, "LW": 32, "LWG": 32, "A2": 35, "A2C": 35, "A2D": 32}
M1 = {"A0": 96, "A1F": 65, "LW": 59, "LWG": 59, "A2": 67, "A2C": 66, "A2D": 59}
"""Attempts over the whole stream: the simulations of CONTRACT.md."""
STALE = {
    "phase1": {"A0": 0, "A1F": 2, "A1": 2, "LW": 2, "LWG": 2, "A2": 1, "A2C": 1, "A2D": 1},
    "v4": {"A0": 0, "A1F": 4, "A1": 2, "LW": 2, "LWG": 2, "A2": 1, "A2C": 1, "A2D": 1, "A2V": 0},
    "acme_m1": {"A0": 0, "A1F": 10, "LW": 4, "LWG": 4, "A2": 2, "A2C": 2, "A2D": 2},
}

CASES: dict[str, tuple[Plan, str, dict[str, Any], dict[str, int]]] = {
    "phase1, other words, no diffs": (ODD, "phase1", {}, PHASE1),
    "v2, src layout": (SRC, "phase2", {"pattern": "v2"}, V2),
    "v4, app in a package": (PACKAGE, "phase2", {"pattern": "v4"}, V4),
    "v2, plain layout": (PLAIN, "phase2", {"pattern": "v2", "arms": "A2,A2D"}, {"A2": 35, "A2D": 34}),
    "acme_sanity": (ACME, "acme", {"stream": "acme_sanity"}, SANITY),
    "acme_m1": (ACME, "acme", {"stream": "acme_m1"}, M1),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_foreign_api_gives_the_attempts_of_the_contract(
    case: str, watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, phase, given, expected = CASES[case]
    if plan.sandbox:
        monkeypatch.setenv("STRIPE_API_KEY", "sk_test_4eC39HqLyjWDarjtT1zdp7dc")
    repository = watched(plan)
    played = run_phase(
        phase, **{"mock": True, "api": str(repository), "arms": ",".join(expected), **given}
    )
    rows = played.rows[played.rows["arm"] != "oracle"]
    assert rows.groupby("arm")["attempts"].sum().to_dict() == expected
    assert rows["success"].all()
    paid = STALE.get(given.get("pattern") or given.get("stream") or phase)
    if paid:
        assert rows.groupby("arm")["stale_attempt"].sum().to_dict() == paid
    assert diff_source(played) == ("server" if plan.diff else "harness")


@pytest.mark.slow
def test_every_row_equals_the_embedded_apis(watched: Builder) -> None:
    """Not only the sums: recalls, entries, bytes and stale attempts, episode by episode."""
    theirs = run_phase("phase2", mock=True, arms="A1F,A2,A2D,A3,LWG", api=str(watched(ODD))).rows
    ours = run_phase("phase2", mock=True, arms="A1F,A2,A2D,A3,LWG").rows
    told = ["latency_s", *(name for name in ours.columns if "tokens" in name)]
    assert theirs.drop(columns=told).equals(ours.drop(columns=told))


def test_the_words_of_the_acme_app_are_taken_from_the_copy_and_its_companion_is_derived_there(
    watched: Builder, monkeypatch: pytest.MonkeyPatch, results: Any
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_4eC39HqLyjWDarjtT1zdp7dc")
    repository = watched(ACME)
    played = run_phase("acme", stream="acme_sanity", mock=True, arms="A2", api=str(repository))
    sent = [each for each in attempts_of(played) if each.arm == "A2"]
    seen = {each.response["table_versions"].get("promo_eligibility") for each in sent if each.response}
    assert {"1.0.0+0", "1.0.0+1"} <= seen
    said = facts(results / f"{played.path.stem}.logs" / "A2-0.log")
    assert str(repository) not in said["file"]
    assert "stripe_api.sandbox" in said["modules"]
