"""Which branch or tag a checkout is at: in the config block, in the report, or an error if asked."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from running import run_phase, settings_of

from crossmem import study
from crossmem.analysis import notices
from crossmem.client import ApiClient
from crossmem.errors import InputError
from crossmem.harness.config import diff_source
from crossmem.harness.results import Run
from crossmem.upstream.checkout import Checkout

from .conftest import Builder
from .foreign import ACME, PLAIN, commit, git


def played(api: Path, phase: str = "phase1", **given: object) -> Run:
    return run_phase(phase, **{"mock": True, "arms": "A0", "api": str(api), **given})


def opened(phase: str, api: Path) -> Checkout:
    """Open a checkout for a phase, strictly."""
    given = {"mock": True, "arms": "A0", "strict_checkout": True, "api": str(api)}
    _, source = study.check(settings_of(phase, **given))
    assert isinstance(source, Checkout)
    return source


def notice(of: Run) -> str:
    return notices.notice(of)._repr_html_()


def test_the_expected_branch_raises_no_doubt(watched: Builder) -> None:
    repository = watched(PLAIN)
    head = git(repository, "rev-parse", "HEAD").strip()
    of = played(repository, strict_checkout=True)
    api = of.config["api"]
    assert {name: api[name] for name in ("source", "path", "commit", "branch", "tags", "dirty")} == {
        "source": "checkout",
        "path": "theirs",
        "commit": head,
        "branch": "feature/versionable-tables",
        "tags": [],
        "dirty": False,
    }
    assert api["warnings"] == []
    said = notice(of)
    assert f"The API is a checkout, theirs at feature/versionable-tables ({head[:12]})." in said
    assert "Checkout:" not in said


def test_another_branch_is_a_warning_in_config_and_report(watched: Builder) -> None:
    of = played(watched(replace(PLAIN, branch="main")))
    said = "expected feature/versionable-tables, but the checkout is at main"
    assert of.config["api"]["warnings"] == [said]
    assert f"Checkout: {said}." in notice(of)


def test_another_branch_is_an_error_if_asked(watched: Builder, results: Path) -> None:
    with pytest.raises(InputError, match=r"strict_checkout: expected feature/versionable-tables, but"):
        played(watched(replace(PLAIN, branch="main")), strict_checkout=True)
    assert not results.exists()


def test_acme_expects_its_tag(made: Builder) -> None:
    tagged, other = made(ACME), made(replace(ACME, tags=("v0.1.0",)), name="other")
    assert opened("acme", tagged).warnings == []
    with pytest.raises(InputError, match=r"expected v0\.2\.0, but the checkout is at main"):
        opened("acme", other)
    git(tagged, "checkout", "-q", "--detach")
    found = opened("acme", tagged)
    assert (found.facts.branch, found.facts.tags) == (None, ("v0.2.0",))


def test_the_profile_may_expect_another(made: Builder) -> None:
    plan = replace(PLAIN, ref="mine", branch="mine")
    assert played(made(plan), strict_checkout=True).config["api"]["profile"]["ref"] == "mine"


def test_a_folder_that_is_no_git_checkout_is_allowed_and_said(made: Builder) -> None:
    repository = made(PLAIN)
    shutil.rmtree(repository / ".git")
    of = played(repository)
    api = of.config["api"]
    assert (api["commit"], api["branch"], api["tags"], api["dirty"]) == (None, None, [], None)
    said = "expected feature/versionable-tables, but the path is no git checkout"
    assert api["warnings"] == [said]
    assert f"Checkout: {said}." in notice(of)
    assert "theirs at no branch (no commit)" in notice(of)
    with pytest.raises(InputError, match="no git checkout"):
        played(repository, strict_checkout=True)


def test_uncommitted_changes_are_said_and_change_the_hash(made: Builder) -> None:
    repository = made(PLAIN)
    clean = played(repository)
    (repository / "notes.txt").write_text("x")
    dirty = played(repository)
    assert (clean.config["api"]["dirty"], dirty.config["api"]["dirty"]) == (False, True)
    assert "with uncommitted changes" in notice(dirty)
    assert "with uncommitted changes" not in notice(clean)
    assert clean.config["api"]["commit"] == dirty.config["api"]["commit"]
    assert clean.config["api"]["sha256"] != dirty.config["api"]["sha256"]
    commit(repository)
    again = played(repository)
    assert again.config["api"]["sha256"] == dirty.config["api"]["sha256"]


@pytest.mark.parametrize(
    ("diff", "arms", "whose"),
    [(False, "A2D", "harness"), (True, "A2D", "server"), (False, "A0,A2", None)],
)
def test_whose_diffs_they_are_is_said(
    arms: str, whose: str | None, watched: Builder, *, diff: bool
) -> None:
    of = played(watched(replace(PLAIN, diff=diff)), arms=arms)
    assert diff_source(of) == whose
    said = "Its reload gives no structured diff: what A2D was handed, the harness computed."
    assert (said in notice(of)) is (whose == "harness")


def test_diffs_of_some_tables_only_are_said(watched: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    reload = ApiClient.reload
    monkeypatch.setattr(
        ApiClient,
        "reload",
        lambda self: tuple(diff for diff in reload(self) if diff.table != "promo_eligibility"),
    )
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_4eC39HqLyjWDarjtT1zdp7dc")
    of = played(watched(ACME), "acme", stream="acme_sanity", arms="A2D")
    assert diff_source(of) == "both"
    assert "a structured diff of some tables only: the others that A2D was handed" in notice(of)
    assert of.rows[of.rows["arm"] == "A2D"]["attempts"].sum() == 32
