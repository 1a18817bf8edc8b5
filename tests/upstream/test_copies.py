"""What a private copy holds: the working tree as it stands, and no way back into it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from running import run_phase

from crossmem.errors import InputError
from crossmem.upstream import tree

from .conftest import Builder
from .foreign import PLAIN, build, commit, git, state


def copied(repository: Path, *include: str) -> Path:
    """Copy a repository beside itself; nothing of it has changed."""
    before = state(repository)
    target = repository.with_name("copy")
    listed = tree.files(repository, list(include))
    tree.copy(repository, listed, target)
    assert state(repository) == before
    assert tree.digest(target, listed) == tree.digest(repository, listed)
    return target


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_uncommitted_edits_are_in_the_copy_and_deleted_files_are_not(made: Builder) -> None:
    repository = made()
    (repository / "app/rules.py").write_text("# edited\n")
    (repository / "staged.txt").write_text("staged")
    git(repository, "add", "staged.txt")
    (repository / "untracked.txt").write_text("untracked")
    (repository / "tables/celiac_brands.snapshots/5.0.0.json").unlink()
    copy = copied(repository)
    assert (copy / "app/rules.py").read_text() == "# edited\n"
    assert {"staged.txt", "untracked.txt"} <= names(copy)
    assert "tables/celiac_brands.snapshots/5.0.0.json" not in names(copy)
    assert ".git" not in names(copy)


def test_ignored_files_stay_out_unless_included(made: Builder) -> None:
    repository = made()
    (repository / "var/deep").mkdir(parents=True)
    (repository / "var/deep/cache.bin").write_bytes(b"\0")
    (repository / "var/empty").mkdir()
    (repository / "a.secret").write_text("s")
    assert not {"var", "a.secret"} & names(copied(repository))
    shutil.rmtree(repository.with_name("copy"))
    both = names(copied(repository, "var", "*.secret"))
    assert {"a.secret", "var/deep/cache.bin", "var/empty"} <= both
    shutil.rmtree(repository.with_name("copy"))
    one = names(copied(repository, "var/**/*.bin"))
    assert "var/deep/cache.bin" in one
    assert "a.secret" not in one


def test_an_include_that_matches_nothing_is_said(made: Builder) -> None:
    with pytest.raises(InputError, match=r"include: nothing in .*theirs matches 'vra/\*'"):
        tree.files(made(), ["vra/*"])


def test_gits_own_files_are_never_copied(made: Builder) -> None:
    assert not any(".git" in Path(name).parts for name in names(copied(made(), "**/*")))


ODD_NAMES = [
    "with space.txt",
    " leading and trailing ",
    "-rf",
    "--others",
    "ünïcödé-日本.txt",
    "new\nline",
    'quo"te',
    "back\\slash",
    "*",
    "[a]",
    os.fsdecode(b"not-utf8-\xff\xfe"),
]


@pytest.mark.parametrize("with_git", [True, False])
def test_odd_names_are_copied(made: Builder, *, with_git: bool) -> None:
    repository = made()
    for name in ODD_NAMES:
        (repository / name).write_text(repr(name))
        (repository / "sub -d").mkdir(exist_ok=True)
        (repository / "sub -d" / name).write_text(repr(name))
    if with_git:
        commit(repository)
    else:
        shutil.rmtree(repository / ".git")
    copy = copied(repository)
    for name in ODD_NAMES:
        assert (copy / name).read_text() == repr(name)
        assert (copy / "sub -d" / name).read_text() == repr(name)


def test_modes_and_mtimes_of_files_are_kept(made: Builder) -> None:
    repository = made()
    tool = repository / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o750)
    os.utime(tool, ns=(10**18, 10**18))
    copy = copied(repository) / "tool.sh"
    assert (copy.stat().st_mode & 0o777, copy.stat().st_mtime_ns) == (0o750, 10**18)


def add_submodule(repository: Path, inner: Path, name: str) -> None:
    allow = ("-c", "protocol.file.allow=always")
    git(repository, *allow, "submodule", "add", "-q", str(inner), name)
    commit(repository)


def test_a_submodule_is_copied_as_it_stands(made: Builder) -> None:
    inner, repository = made(name="inner"), made()
    add_submodule(repository, inner, "lib/inner")
    (repository / "lib/inner/app/rules.py").write_text("# edited\n")
    (repository / "lib/inner/x.secret").write_text("ignored there")
    copy = copied(repository)
    assert (copy / "lib/inner/app/rules.py").read_text() == "# edited\n"
    assert not {"lib/inner/x.secret", "lib/inner/.git"} & names(copy)


def test_a_submodule_that_was_never_fetched_is_an_empty_folder(made: Builder) -> None:
    inner, repository = made(name="inner"), made()
    add_submodule(repository, inner, "lib")
    clone = repository.with_name("clone")
    git(repository, "clone", "-q", str(repository), str(clone))
    assert {name for name in names(copied(clone)) if name.startswith("lib")} == {"lib"}


def test_an_untracked_repository_in_the_repository_is_copied(made: Builder) -> None:
    repository = made()
    (repository / "vendor").mkdir()
    nested = made(name="theirs/vendor/nested")
    assert nested.is_relative_to(repository)
    assert "vendor/nested/app/main.py" in names(copied(repository))


def test_a_worktree_is_a_checkout_like_any_other(made: Builder) -> None:
    repository = made()
    git(repository, "worktree", "add", "-q", "-b", "other", str(repository.with_name("tree")))
    before = state(repository)
    worktree = repository.with_name("tree")
    assert tree.facts(worktree).branch == "other"
    assert "app/main.py" in names(copied(worktree))
    assert state(repository) == before


# -- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_git", [True, False])
def test_links_within_the_tree_lead_into_the_copy(made: Builder, *, with_git: bool) -> None:
    repository = made()
    links = {
        "relative": "app/rules.py",
        "app/up": "../tables",
        "absolute": str(repository / "app/rules.py"),
        "app/absolute-folder": str(repository / "tables"),
        "roundabout": f"../{repository.name}/app/rules.py",
        "chain": "relative",
        "dangling": "app/none.py",
    }
    for name, target in links.items():
        (repository / name).symlink_to(target)
    if with_git:
        commit(repository)
    else:
        shutil.rmtree(repository / ".git")
    copy = copied(repository)
    for name in links:
        assert (copy / name).is_symlink()
        assert (copy / name).resolve().is_relative_to(copy), name
    assert (copy / "absolute").resolve() == copy / "app/rules.py"
    assert (copy / "app/absolute-folder").resolve() == copy / "tables"
    (copy / "absolute").write_text("written through the link")
    assert (repository / "app/rules.py").read_text() != "written through the link"


@pytest.mark.parametrize("target", ["../outside", "{outside}", "app/../../outside/file", "loop"])
def test_a_link_out_of_the_tree_or_to_nowhere_is_refused_before_anything_is_copied(
    target: str, made: Builder, results: Path
) -> None:
    repository = made()
    outside = repository.with_name("outside")
    outside.mkdir()
    (outside / "file").write_text("mine")
    (repository / "loop").symlink_to(target.format(outside=outside))
    with pytest.raises(InputError, match=r"loop leads out of the checkout, or nowhere"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert not results.exists()
    assert (outside / "file").read_text() == "mine"


def test_an_include_does_not_follow_a_link_out_of_the_tree(made: Builder) -> None:
    repository = made()
    outside = repository.with_name("outside")
    outside.mkdir()
    (outside / "file").write_text("mine")
    (repository / "linked.secret").symlink_to(outside)
    with pytest.raises(InputError, match="leads out of the checkout"):
        tree.files(repository, ["*.secret"])
    assert (repository / "app/main.py").exists()
    assert not [path for path in tree.files(repository, ["app/*"]) if path.name == "file"]


def test_a_table_that_is_a_link_is_swapped_where_the_app_reads_it(
    watched: Builder, tmp_path: Path
) -> None:
    repository = build(tmp_path / "linked", PLAIN)
    (repository / "real").mkdir()
    table = repository / "tables/celiac_brands.json"
    table.rename(repository / "real/brands.json")
    table.symlink_to("../real/brands.json")
    commit(repository)
    before = state(repository)
    played = run_phase("phase1", mock=True, arms="A0,LW", api=str(repository))
    assert played.rows.groupby("arm")["attempts"].sum().to_dict() == {"A0": 46, "LW": 37}
    assert state(repository) == before


def test_special_files_are_left_out(made: Builder) -> None:
    repository = made()
    os.mkfifo(repository / "pipe")
    shutil.rmtree(repository / ".git")
    assert Path("pipe") not in tree.files(repository, [])


# -- what git says -------------------------------------------------------------------------------


def test_commit_branch_tags_and_dirtiness_are_read(made: Builder) -> None:
    repository = made()
    git(repository, "tag", "one")
    git(repository, "tag", "-a", "two", "-m", "annotated")
    found = tree.facts(repository)
    assert found.commit == git(repository, "rev-parse", "HEAD").strip()
    assert (found.branch, found.tags, found.dirty) == (
        "feature/versionable-tables",
        ("one", "two"),
        False,
    )
    (repository / "new").touch()
    assert tree.facts(repository).dirty


def test_a_detached_head_has_no_branch(made: Builder) -> None:
    repository = made()
    git(repository, "checkout", "-q", "--detach")
    found = tree.facts(repository)
    assert (found.branch, found.dirty) == (None, False)
    assert found.mismatch("v9") == f"expected v9, but the checkout is at {str(found.commit)[:12]}"


def test_a_repository_without_a_commit_is_told_from_none(tmp_path: Path) -> None:
    folder = tmp_path / "unborn"
    folder.mkdir()
    (folder / "file").touch()
    git(folder, "init", "-q", "-b", "main")
    assert tree.facts(folder) == tree.Facts(None, "main", (), dirty=True)
    assert tree.files(folder, []) == [Path("file")]


def test_a_folder_that_a_repository_around_it_ignores_is_no_checkout(made: Builder) -> None:
    repository = made()
    unpacked = made(name="theirs/var/unpacked")
    shutil.rmtree(unpacked / ".git")
    assert tree.facts(unpacked) == tree.Facts()
    assert Path("app/main.py") in tree.files(unpacked, [])
    assert tree.facts(repository).commit


def test_a_folder_within_a_repository_is_listed_by_itself(made: Builder) -> None:
    repository = made()
    found = tree.files(repository / "tables", [])
    assert Path("celiac_brands.json") in found
    assert tree.facts(repository / "tables").commit == tree.facts(repository).commit


def test_a_repository_that_git_refuses_is_said(made: Builder) -> None:
    repository = made()
    (repository / ".git/HEAD").write_text("nonsense")
    found = tree.facts(repository)
    assert found.commit is None
    assert "git does not read the path" in str(found.mismatch("v1"))


def test_variables_of_a_hook_do_not_lead_git_elsewhere(
    made: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, other = made(), made(name="other")
    (other / "more").touch()
    commit(other)
    expected = tree.facts(repository)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert tree.facts(repository) == expected
    assert Path("more") not in tree.files(repository, [])


def test_reading_starts_no_monitor_and_writes_no_index(made: Builder, tmp_path: Path) -> None:
    repository = made()
    called = tmp_path / "called"
    monitor = tmp_path / "monitor.sh"
    monitor.write_text(f"#!/bin/sh\ntouch '{called}'\n")
    monitor.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(monitor))
    for path in repository.rglob("*.py"):  # the index is out of date now: a status would refresh it
        os.utime(path)
    called.unlink(missing_ok=True)
    index = (repository / ".git/index").stat()
    tree.facts(repository)
    tree.files(repository, [])
    after = (repository / ".git/index").stat()
    assert (after.st_mtime_ns, after.st_ino) == (index.st_mtime_ns, index.st_ino)
    assert not called.exists()


def test_without_git_on_the_machine_a_checkout_is_a_folder(
    made: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository = made()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tree.facts(repository).commit is None
    listed = tree.files(repository, [])
    assert Path("app/main.py") in listed
    assert not [path for path in listed if ".git" in path.parts]
