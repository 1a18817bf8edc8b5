"""The command line: `crossmem streams | audit | serve | report | parameters | publish | doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from crossmem import __version__, paths
from crossmem.errors import CrossmemError, InputError, unknown

if TYPE_CHECKING:
    from crossmem.settings import Settings


class _Group(click.Group):
    """Shows our own errors as one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CrossmemError as error:
            click.echo(f"crossmem: {error}", err=True)
            sys.exit(2 if isinstance(error, InputError) else 1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Which cross-episode memory policy pays when the API behind an agent drifts?"""


@main.command()
@click.argument("names", nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; fail if a file on disk differs.")
def streams(names: tuple[str, ...], check: bool) -> None:
    """Write the stream files anew (all, or those named)."""
    from crossmem import authoring
    from crossmem.streams import path_of
    from crossmem.streams.plans import PLANS

    differing = []
    for name in _known(names, PLANS):
        plan = PLANS[name]
        if not check:
            click.echo(authoring.write(plan))
            continue
        path = path_of(name)
        same = path.is_file() and path.read_bytes() == authoring.author(plan).dumped().encode()
        differing += [] if same else [name]
        click.echo(f"{'same' if same else 'DIFFERS'}  {path}")
    if differing:
        raise CrossmemError(f"not what the authors write: {', '.join(differing)}")


@main.command()
@click.argument("names", nargs=-1)
def audit(names: tuple[str, ...]) -> None:
    """Prove that no fix value stands in a task, a criterion or a prompt."""
    from crossmem import authoring
    from crossmem import streams as files

    leaks = 0
    for name in names or files.names():
        found = authoring.audit(files.load(name))
        leaks += len(found)
        click.echo(f"{name}: {f'{len(found)} leaks' if found else 'no leak'}")
        for leak in found:
            click.echo(f"  {leak}", err=True)
    if leaks:
        raise CrossmemError(f"{leaks} leaks found")


@main.command()
@click.argument("domain")
@click.option("--port", default=8000, show_default=True, help="Port on loopback; 0 takes a free one.")
def serve(domain: str, port: int) -> None:
    """Start the API of DOMAIN for a person to explore, on a copy of its tables."""
    from crossmem import domains
    from crossmem.api import tables_of
    from crossmem.api.server import serve as run
    from crossmem.harness.table_files import private_copy

    with TemporaryDirectory() as folder:
        tables = Path(folder) / domain
        private_copy(tables_of(domain), tables, domains.domain(domain).companions)
        run(domain, port, tables)


class _ParameterName(click.ParamType[str]):
    """The name of a parameter; a shell completes those of the notebook named before."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        kind = notebook_settings().get(Path(ctx.params.get("notebook") or "").stem)
        fields = kind.model_fields if kind else {}
        return [
            CompletionItem(name, help=field.description)
            for name, field in fields.items()
            if name.startswith(incomplete)
        ]


@main.command()
@click.argument("notebook")
@click.option(
    "-p",
    "--parameter",
    "given",
    type=(_ParameterName(), str),
    multiple=True,
    help="NAME VALUE, repeatable; `crossmem parameters NOTEBOOK` lists them.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HTML file to write.")
def report(notebook: str, given: tuple[tuple[str, str], ...], output: Path | None) -> None:
    """Execute NOTEBOOK (a name such as phase1, or a path) and render its executed copy."""
    from crossmem import study
    from crossmem.report.execute import claimed_page, sentinel_text
    from crossmem.report.execute import report as execute_and_render
    from crossmem.settings import RunSettings, read_settings

    path = _notebook(notebook)
    if kind := notebook_settings().get(path.stem):
        settings = read_settings(kind, dict(given))
        if isinstance(settings, RunSettings):
            study.check(settings)
    with claimed_page(output, path.stem) as html:
        execute_and_render(path, html, dict(given))
        click.echo(sentinel_text(html.with_suffix(".ipynb")))
    click.echo(f"Report: {html}")


@main.command()
@click.argument("notebook")
@click.option("--write", is_flag=True, help="Write them into the notebook's parameters cell.")
def parameters(notebook: str, write: bool) -> None:
    """List the parameters that NOTEBOOK takes: type, default, meaning."""
    from crossmem.settings import parameters_cell

    known = notebook_settings()
    if notebook not in known:
        raise unknown("notebook", notebook, known)
    source = parameters_cell(known[notebook])
    click.echo(source)
    if write:
        from crossmem.report.execute import write_parameters

        write_parameters(paths.notebooks() / f"{notebook}.ipynb", source)


@main.command()
@click.argument("names", nargs=-1)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="The folder to write to; reports/published if not given.",
)
def publish(names: tuple[str, ...], to: Path | None) -> None:
    """Write finished reports (all, or those named) and an index of them for a web host."""
    from crossmem.report.site import publish as put

    for path in put(names, paths.reports(), to or paths.published()):
        click.echo(path)


@main.command()
@click.option("--api", help="Path of a checkout of the API repository to judge as well.")
@click.option("--phase", default="phase1", show_default=True, help="The phase to judge it for.")
@click.option("--python", default="", help="The Python to run it with.")
def doctor(api: str | None, phase: str, python: str) -> None:
    """Say what would run here and what is missing; exit 0 if the mock study can run."""
    from crossmem.cli.environment import examine

    found = list(examine(api, phase, python))
    for finding in found:
        click.echo(finding)
    lacking = [finding.what for finding in found if finding.missing and finding.needed]
    if lacking:
        raise CrossmemError(f"the mock study cannot run: {', '.join(lacking)}")
    click.echo("The mock study can run.")


def notebook_settings() -> dict[str, type[Settings]]:
    """Return the settings that each notebook takes, by its name."""
    from crossmem import settings as core
    from crossmem.experience.settings import ExperienceSettings

    kinds: tuple[type[Settings], ...] = (
        core.Phase1Settings,
        core.Phase2Settings,
        core.Phase3Settings,
        core.AcmeSettings,
        ExperienceSettings,
        core.StaleAttemptsSettings,
        core.CompareSettings,
    )
    return {kind.notebook: kind for kind in kinds}


def _notebook(name: str) -> Path:
    """Return the notebook called `name`, or at that path."""
    for path in (Path(name), paths.notebooks() / f"{name}.ipynb"):
        if path.suffix == ".ipynb" and path.is_file():
            return path
    raise unknown("notebook", name, sorted(each.stem for each in paths.notebooks().glob("*.ipynb")))


def _known(names: tuple[str, ...], choices: Iterable[str]) -> list[str]:
    listed = list(choices)
    for name in names:
        if name not in listed:
            raise unknown("stream", name, listed)
    return list(names) or listed
