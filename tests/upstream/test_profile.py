"""Where things are: an upstream.toml in every field, in the checkout or beside it."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from running import run_phase

from crossmem.client import Routes
from crossmem.errors import InputError
from crossmem.upstream.profile import Profile, load

from .conftest import Builder
from .foreign import ODD, PLAIN, facts

EVERY_FIELD = """
ref = "some/branch"
include = ["var/*", "*.secret"]
[server]
app = "app.main:app"
path = "app"
cwd = "tables"
health = "/up"
port = 8123
token_variable = "TOKEN"
env = { MODE = "test" }
[tables]
file = "tables/{table}.json"
snapshot = "tables/{table}.snapshots/{name}.json"
version = "v"
rows = "r"
[paths]
endpoints = { "/recipes/convert" = "/c" }
reload = "/r"
token_header = "X-T"
versions = "/v"
"""


def test_every_field_is_read(made: Builder) -> None:
    repository = made()
    (repository / "app/app").mkdir()
    (repository / "app/app/main.py").touch()
    (repository / "upstream.toml").write_text(EVERY_FIELD)
    found = load(repository)
    assert found.model_dump() == tomllib.loads(EVERY_FIELD)
    assert found.expected_ref("phase1") == "some/branch"
    assert found.paths.routes() == Routes({"/recipes/convert": "/c"}, "/r", "X-T", "/v")


def test_all_but_the_app_may_be_left_out(made: Builder) -> None:
    repository = made()
    (repository / "upstream.toml").write_text('[server]\napp = "app.main:app"\n')
    found = load(repository)
    assert found.paths.versions is None
    assert [found.expected_ref(phase) for phase in ("phase1", "phase2", "phase3", "acme")] == [
        "feature/versionable-tables",
        "feature/drift-snapshots-and-table-diff",
        "feature/drift-snapshots-and-table-diff",
        "v0.2.0",
    ]


def test_what_the_docs_show_is_what_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs/upstream.md").read_text(encoding="utf-8")
    blocks = page.split("\n\n")
    text = "\n".join(
        line for block in blocks if block.startswith("    ") for line in block.splitlines()
    )
    shown = text[text.index("    ref =") : text.index('    [server]\n    app = "acme')]
    full = Profile.model_validate(tomllib.loads(shown))
    bare = Profile.model_validate({"server": {"app": full.server.app}, "ref": full.ref})
    example = {"endpoints": {"/recipes/convert": "/convert"}}
    assert full == bare.model_copy(update={"paths": bare.paths.model_copy(update=example)})
    assert set(tomllib.loads(shown)["server"]) == set(type(full.server).model_fields)
    acme = Profile.model_validate(tomllib.loads(text[text.index('    [server]\n    app = "acme') :]))
    assert set(acme.paths.endpoints) == {"/billing/charges", "/billing/refunds"}


APP = 'server.app = "app.main:app"\n'
BAD = {
    "[server": r"upstream\.toml is no TOML: ",
    'sever.app = "app.main:app"': r"upstream\.toml: server: Field required",
    f"{APP}server.prot = 1": r"server\.prot: Extra inputs",
    'server.app = "app.main"': r"server\.app: ",
    'server.app = "app/main.py:app"': r"server\.app: ",
    'server.app = "..app:app"': r"server\.app: ",
    f'{APP}server.port = "many"': r"server\.port: .*integer",
    f"{APP}server.port = 70000": r"server\.port: .*65535",
    f'{APP}server.health = "up"': r"server\.health: ",
    f'{APP}server.path = ".."': r"server\.path: .*no \.\.",
    f'{APP}server.cwd = "/tmp"': r"server\.cwd: .*no absolute",
    f'{APP}include = ["../*"]': r"include\.0: .*must lie in the checkout",
    f'{APP}paths.reload = "http://elsewhere/"': r"paths\.reload: ",
    f'{APP}tables.file = "../mine/{{table}}.json"': r"tables\.file: .*must lie in the checkout",
    f'{APP}tables.file = "/etc/{{table}}.json"': r"tables\.file: .*must lie in the checkout",
    f'{APP}tables.file = "tables.json"': r"tables\.file: .*must hold \{table\}",
    f'{APP}tables.file = "{{table}}/{{branch}}.json"': r"tables\.file: .*no other placeholder",
    f'{APP}tables.file = "{{table.json"': r"tables\.file: ",
    f'{APP}tables.snapshot = "{{table}}.json"': r"snapshot: .*must hold \{table\} and \{name\}",
    f'{APP}tables.snapshot = "{{table}}{{name}}{{name}}"': r"snapshot: .*no other placeholder",
    'server.app = "app.web:app"': r"does not have: app/web\.py or app/web/__init",
    f'{APP}server.cwd = "run"': r"does not have: run",
    f'{APP}tables.file = "data/{{table}}.json"': r"data/celiac_brands\.json is missing, and the stream",
    f'{APP}tables.snapshot = "old/{{table}}.{{name}}.json"': r"old/celiac_brands\.2\.0\.0\.json is mis",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_profile_is_refused_in_one_line_before_anything_starts(
    text: str, made: Builder, results: Path
) -> None:
    repository = made()
    (repository / "upstream.toml").write_text(text)
    with pytest.raises(InputError, match=BAD[text]) as caught:
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert "\n" not in str(caught.value).rstrip()
    assert not results.exists()


def test_bytes_that_are_no_text_are_no_profile(made: Builder) -> None:
    repository = made()
    (repository / "upstream.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"upstream\.toml is no TOML"):
        load(repository)


def test_tables_that_git_ignores_are_said_to_need_an_include(made: Builder, results: Path) -> None:
    repository = made()
    shutil.move(repository / "tables", repository / "var")
    toml = (repository / "upstream.toml").read_text().replace('"tables/', '"var/')
    settings = repository / "app/settings.json"
    settings.write_text(settings.read_text().replace('"tables/', '"var/'))
    (repository / "upstream.toml").write_text(toml)
    with pytest.raises(InputError, match=r"celiac_brands\.json is ignored by git; name it under `incl"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    (repository / "upstream.toml").write_text(f'include = ["var"]\n{toml}')
    assert run_phase("phase1", mock=True, arms="A0", api=str(repository)).rows["attempts"].sum() == 46


def test_a_profile_beside_the_checkout_leaves_it_alone(watched: Builder, tmp_path: Path) -> None:
    repository = watched(replace(ODD, profile=False), name="my-apis")
    beside = re.escape(str(tmp_path / "my-apis.toml"))
    with pytest.raises(
        InputError, match=rf"has no profile: write {beside}, or upstream.toml in it.*`server.app = "
    ):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    (tmp_path / "my-apis.toml").write_text(ODD.toml)
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert played.config["api"]["dirty"] is False
    assert played.config["api"]["profile"]["server"]["token_variable"] == "SVC_TOKEN"


def test_the_profile_in_the_checkout_comes_first(made: Builder, tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text("nonsense")
    assert load(made()).server.app == "app.main:app"


def test_values_of_the_apps_environment_are_given_to_it_and_never_written_down(
    watched: Builder, results: Path
) -> None:
    repository = watched(replace(PLAIN, server='env = { DATABASE = "pw-9137-hidden" }'))
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert played.config["api"]["profile"]["server"]["env"] == ["DATABASE"]
    assert "pw-9137-hidden" not in played.path.read_text()
    said = facts(results / f"{played.path.stem}.logs" / "A0-0.log")
    assert said["environment"]["DATABASE"] == "pw-9137-hidden"
