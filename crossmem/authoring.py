"""Write the stream files from the domains' plans, and audit that no stream or prompt leaks a fix.

A3's budget is part of a stream and measured, not chosen: 45 % of the most that A2 holds on it, in force
over a window that crosses no drift. Hence the author replays every stream once against a real server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from crossmem import paths, streams
from crossmem.agents.prompts import HINT_STYLES
from crossmem.agents.scripted import ScriptedAgent
from crossmem.api import tables_of
from crossmem.contract import Json
from crossmem.domains import domain
from crossmem.harness.runner import prompter_for, replay_of
from crossmem.harness.table_files import read_table
from crossmem.memory.arms import ARMS
from crossmem.settings import Phase1Settings
from crossmem.streams import BudgetStep, DriftEvent, Episode, Stream
from crossmem.upstream.embedded import EmbeddedApi

if TYPE_CHECKING:
    from crossmem.client import ApiClient
    from crossmem.harness.table_files import TableFiles
    from crossmem.streams.plan import Plan

BUDGET_SHARE = 0.45


def author(plan: Plan) -> Stream:
    """Return the stream that `plan` describes, its budget measured."""
    authored = plan.tasks()
    table = domain(plan.domain).drifting_table
    stream = Stream(
        name=plan.name,
        domain=plan.domain,
        results_prefix=plan.results_prefix,
        drift_events=[
            DriftEvent(before=before, table=table, snapshot=snapshot)
            for before, snapshot in plan.drifts
        ],
        budget=[],
        episodes=[
            Episode(
                index=index,
                task=each.task,
                snapshot=_snapshot(plan, index),
                provision=each.provision,
            )
            for index, each in enumerate(authored)
        ],
        criteria={each.task.id: each.criterion for each in authored},
    )
    if plan.budget_window is None:
        return stream
    first, last = plan.budget_window
    limit = int(BUDGET_SHARE * _most_held(stream, plan))
    budget = [BudgetStep(before=first, bytes=limit), BudgetStep(before=last + 1, bytes=None)]
    return stream.model_copy(update={"budget": budget})


def write(plan: Plan) -> Path:
    """Write the stream of `plan` into place and return where it lies."""
    path = streams.path_of(plan.name)
    path.parent.mkdir(exist_ok=True)
    text = author(plan).dumped()
    with paths.whole(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def audit(stream: Stream) -> list[str]:
    """Return every place where a fix value stands that an agent could read in advance; [] = no leak.

    The drifting table's values, of all snapshots, may stand in no task, criterion or prompt. Any other
    fix may not stand in the text, the Input Data or the criterion of the episode that it mends.
    """
    table = domain(stream.domain).drifting_table
    with _server(stream) as (api, _):
        return [
            f"{value!r} of {table} stands in {place}"
            for place, text in _texts(stream, api)
            for value in _rotating_values(stream)
            if value.lower() in text.lower()
        ] + [leak for episode in stream.episodes for leak in _own_fixes(stream, episode, api)]


def _own_fixes(stream: Stream, episode: Episode, api: ApiClient) -> Iterator[str]:
    """Yield the fixes of a raw task that stand in the task itself."""
    criterion = stream.criteria[episode.task.id]
    text = f"{episode.task.description} {json.dumps(criterion, ensure_ascii=False)}".lower()
    leaves = [*_leaves(episode.task.input), *_leaves(criterion)]
    strings = "\n".join([text, *(leaf for leaf in leaves if isinstance(leaf, str))]).lower()
    endpoint = domain(stream.domain).endpoint(episode.task)
    for fix in api.submit(endpoint, episode.task.input).suggestions:
        for value in _leaves(fix.suggested_value):
            spelled = f"{value:g}" if isinstance(value, int | float) else str(value)
            whole_word = rf"(?<![\w.]){re.escape(spelled.lower())}(?!\w|\.\d)"
            if value in leaves or re.search(whole_word, strings):
                yield f"the fix {value!r} of episode {episode.index} stands in its own task"


def _snapshot(plan: Plan, index: int) -> str:
    passed = [snapshot for before, snapshot in plan.drifts if before <= index]
    return passed[-1] if passed else plan.base_snapshot


@contextmanager
def _server(stream: Stream) -> Iterator[tuple[ApiClient, TableFiles]]:
    with (
        TemporaryDirectory() as folder,
        EmbeddedApi(stream.domain).serve(Path(folder) / "tables") as over,
    ):
        yield over


def _most_held(stream: Stream, plan: Plan) -> int:
    """Return the most bytes that A2 holds at the end of an episode."""
    settings = Phase1Settings(mock=True, model="haiku", keying=plan.keying)
    with _server(stream) as over:
        agent = ScriptedAgent(settings.model, prompter_for(settings, stream, over[0]))
        replay = replay_of(settings, stream, ARMS["A2"], agent, over)
        return max(replay.episode(index).row.bytes for index in range(len(stream.episodes)))


def _rotating_values(stream: Stream) -> list[str]:
    table = domain(stream.domain).drifting_table
    files = sorted((tables_of(stream.domain) / f"{table}.snapshots").glob("*.json"))
    return sorted({str(value) for path in files for value in _leaves(dict(read_table(path).rows))})


def _texts(stream: Stream, api: ApiClient) -> Iterator[tuple[str, str]]:
    """Yield everything an agent is shown before it has learned anything, and the criteria."""
    for episode in stream.episodes:
        yield f"task {episode.task.id}", episode.task.model_dump_json()
    yield "the criteria", json.dumps(stream.criteria, ensure_ascii=False)
    for style in HINT_STYLES:
        prompter = replace(prompter_for(Phase1Settings(mock=True), stream, api), hint_style=style)
        schemas = " ".join({prompter.schema(episode.task) for episode in stream.episodes})
        yield f"the {style} prompt", f"{prompter.stable()} {schemas} {HINT_STYLES[style]}"


def _leaves(value: Json) -> Iterator[Json]:
    match value:
        case dict():
            for each in value.values():
                yield from _leaves(each)
        case list():
            for each in value:
                yield from _leaves(each)
        case _:
            yield value
