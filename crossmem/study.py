"""Run or load a phase: settings in, a finished run out. Here the rooms are joined, and nowhere else."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ParamSpec

from tqdm import tqdm

from crossmem import paths, streams
from crossmem.agents.cost import Meter
from crossmem.agents.factory import agent_factory, check_model, expectation, full_name, label
from crossmem.agents.scripted import same_as_haiku
from crossmem.api import tables_of
from crossmem.api.payments.access import KEY_VARIABLE, stripe_access
from crossmem.authoring import audit
from crossmem.domains import domain
from crossmem.errors import InputError, unknown
from crossmem.harness import results
from crossmem.harness.config import check_same_api, find_unfinished, run_config
from crossmem.harness.log import RunLog, read_config
from crossmem.harness.runner import Runner, now, private_folder, prompter_for
from crossmem.settings import (
    EMBEDDED,
    EXECUTION_FIELDS,
    AcmeSettings,
    Phase1Settings,
    Phase2Settings,
    Phase3Settings,
    RunSettings,
    read_settings,
)
from crossmem.upstream.embedded import EmbeddedApi

if TYPE_CHECKING:
    from crossmem.agents.factory import AgentFactory
    from crossmem.api.payments.access import StripeAccess
    from crossmem.harness.results import Run
    from crossmem.harness.runner import ApiSource
    from crossmem.streams import Stream

P = ParamSpec("P")


def run(settings: RunSettings | str, **given: Any) -> Run:
    """Run a phase, or load the results file that its settings name.

    `settings` are what a guard made, or the name of a phase, whose settings are then `given` by name.

    Raises InputError before anything starts where a setting cannot be used, and CrossmemError with the
    reason where a run stops half-way: its log stays and `resume=True` completes it.
    """
    if isinstance(settings, str):
        if settings not in _PHASES:
            raise unknown("phase", settings, _PHASES)
        settings = read_settings(_PHASES[settings], given)
    elif given:
        raise InputError(f"run: {', '.join(given)} beside settings; a setting belongs into them")
    if settings.results:
        return _found(settings)
    stream, source = check(settings)
    advice = f"name another folder in the environment variable {paths.RESULTS_VARIABLE}"
    paths.check_writable(paths.results(), advice)
    unfinished = find_unfinished(settings, stream) if settings.resume else None
    if unfinished:
        check_same_api(unfinished, source)
    _announce(settings)
    if isinstance(source, EmbeddedApi) and source.stripe:
        from crossmem.api.payments import payments  # loads stripe-python, which takes long

        payments.check_payments(source.stripe)
    with agent_factory(settings) as agents:
        probes = _probe(settings, stream, source, agents)
        with closing(_open_log(settings, stream, source, probes, unfinished)) as log:
            Runner(settings, stream, source, agents, log).run()
    return results.load(log.path)


def _found(settings: RunSettings) -> Run:
    """Load the results file that the settings name; refuse a setting that contradicts it."""
    asked = settings.given() & {"pattern", "stream"}
    stream = streams.load(settings.stream_name).name if asked else None
    found = results.find(settings.results, settings.phase, stream)
    _check_own(settings, found.path, found.config)
    return found


def _check_own(settings: RunSettings, path: Path, config: dict[str, Any]) -> None:
    """Raise InputError where a setting asked for is not the one that a finished run had."""
    for name in sorted(settings.given() - EXECUTION_FIELDS - {"pattern", "stream"}):
        was, asked = config["parameters"].get(name), getattr(settings, name)
        if was != asked:
            raise InputError(
                f"results: {path.name} was run with {name} = {was!r}, not {asked!r}; "
                f"leave {name} out, or run anew without results"
            )


def check(settings: RunSettings) -> tuple[Stream, ApiSource]:
    """Return the stream and the API of a run that can start.

    Raises InputError where it cannot, saying why; so where the results file that the settings name
    cannot be used. Nothing is started or written but, for a stream file, an API to audit it with.
    """
    stream = streams.load(settings.stream_name)
    if settings.results:
        asked = settings.given() & {"pattern", "stream"}
        for path in results.locate(settings.results, settings.phase, stream.name if asked else None)[
            :1
        ]:
            _check_own(settings, path, read_config(path))
        return stream, EmbeddedApi(stream.domain)
    if stream.domain not in settings.domains:
        fitting = " or ".join(settings.domains)
        raise InputError(
            f"stream {settings.stream_name!r} is of the domain {stream.domain}; {settings.phase} "
            f"replays streams of {fitting}"
        )
    if settings.keying not in domain(stream.domain).keyings:
        raise InputError(f"keying {settings.keying!r}: the domain {stream.domain} knows task alone")
    if settings.stream_name not in streams.names():
        _check_file(settings, stream)
    settings.check_inputs(stream)
    check_model(settings)
    Meter(full_name(settings.model), settings.max_tokens_total, settings.max_cost_usd)
    return stream, _open_source(settings, stream)


def _check_file(settings: RunSettings, stream: Stream) -> None:
    """Raise InputError where a stream file names what the tables lack, or does not pass the audit."""
    folder = tables_of(stream.domain)
    for event in stream.drift_events if settings.api == EMBEDDED else ():
        known = sorted(path.stem for path in folder.glob(f"{event.table}.snapshots/*.json"))
        if event.snapshot not in known:
            raise unknown(f"snapshot of {event.table}", event.snapshot, known)
    if leaks := audit(stream):
        raise InputError(
            f"stream {settings.stream_name!r} does not pass the audit: {leaks[0]} "
            f"({len(leaks)} in all; `crossmem audit FILE` lists them)"
        )


def _open_source(settings: RunSettings, stream: Stream) -> ApiSource:
    """Return the API to run over; raises InputError where a checkout cannot be used."""
    if settings.api == EMBEDDED:
        access = _stripe(settings) if isinstance(settings, AcmeSettings) else None
        return EmbeddedApi(stream.domain, access)
    from crossmem.upstream.checkout import announce, open_checkout

    arms = settings.arms_to_run()
    checkout = open_checkout(
        settings.api, settings.phase, stream, settings.api_python, strict=settings.strict_checkout
    )
    needy = [arm.name for arm in arms if arm.signal == "versions"]
    if needy and checkout.profile.paths.versions is None:
        raise InputError(
            f"arms: {needy[0]} reads the API's versions, and the checkout has no endpoint for them "
            "(`versions` under [paths] in its profile)"
        )
    announce(checkout, len(arms) * settings.replicates)
    return checkout


def _stripe(settings: AcmeSettings) -> StripeAccess | None:
    """Return the access to Stripe's test mode, None for the emulator; refuses other keys."""
    access = stripe_access(settings.stripe)
    if access is None and os.environ.get(KEY_VARIABLE):
        warnings.warn(f"{KEY_VARIABLE} is set and ignored: stripe is {settings.stripe}", stacklevel=2)
    return access


def _open_log(
    settings: RunSettings,
    stream: Stream,
    source: ApiSource,
    probes: list[dict[str, Any]],
    unfinished: Path | None,
) -> RunLog:
    if unfinished:
        log = RunLog.resume(unfinished)
        if probes:
            log.note_resumed(now().isoformat(timespec="seconds"), probes)
        return log
    stem = f"{stream.results_prefix}_{stream.pattern}_{label(settings)}_{now():%Y%m%dT%H%M%SZ}"
    return RunLog.create(paths.results(), stem, run_config(settings, stream, source, probes))


def _announce(settings: RunSettings) -> None:
    """Say before a scripted run what in it will vary nothing."""
    if not settings.mock:
        return
    if same := same_as_haiku(settings.model, settings.hint_style):
        tqdm.write(same, file=sys.stderr)
    if settings.replicates > 1 and not any(arm.draws for arm in settings.arms_to_run()):
        said = f"the scripted agent is deterministic: {settings.replicates} replicates give equal rows"
        tqdm.write(said, file=sys.stderr)


def _probe(
    settings: RunSettings, stream: Stream, source: ApiSource, agents: AgentFactory
) -> list[dict[str, Any]]:
    """Say what a live run will take and probe its model, before anything else is done."""
    if settings.mock:
        return []
    tasks = [episode.task for episode in stream.episodes]
    with (
        private_folder() as folder,
        source.serve(folder / "tables", folder / "preflight.log", Event()) as (api, _),
    ):
        prompter = prompter_for(settings, stream, api)
    tqdm.write(expectation(settings, prompter, tasks), file=sys.stderr)
    return agents.probe(
        prompter, tasks[0], lambda wait: tqdm.write(f"preflight {wait}", file=sys.stderr)
    )


_PHASES = {
    kind.notebook: kind for kind in (Phase1Settings, Phase2Settings, Phase3Settings, AcmeSettings)
}


def _phase(kind: Callable[P, RunSettings], summary: str) -> Callable[P, Run]:
    """Return a function that runs a phase and takes its settings by name, documented one by one."""
    of: Any = kind

    def run_phase(*_: P.args, **given: P.kwargs) -> Run:
        return run(read_settings(of, given))

    described: Any = run_phase
    fields = "\n".join(f"    {name}: {field.description}" for name, field in of.model_fields.items())
    described.__doc__ = f"{summary} See `run` for what it raises.\n\n{fields}\n"
    described.__signature__ = inspect.signature(of).replace(return_annotation="Run")
    return run_phase


phase1 = _phase(Phase1Settings, "Run or load Phase 1: one drift, 24 episodes.")
phase2 = _phase(Phase2Settings, "Run or load Phase 2: one drift pattern over the same 24 tasks.")
phase3 = _phase(Phase3Settings, "Run or load Phase 3: 48 episodes, four drifts.")
acme = _phase(AcmeSettings, "Run or load the Acme billing study: rotations of the csm codes.")
