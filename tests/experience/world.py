"""A few nodes to tell faithful from fixed by, and a real stream lived through by an arm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from crossmem import streams
from crossmem.agents.scripted import ScriptedAgent
from crossmem.domains import domain
from crossmem.experience.arms import TABLE
from crossmem.experience.cards import Deck
from crossmem.experience.node import Node, NodeJournal
from crossmem.experience.select import Selector
from crossmem.harness.runner import prompter_for, replay_of
from crossmem.memory.entry import Entry, Key
from crossmem.settings import Phase1Settings
from crossmem.upstream.embedded import EmbeddedApi

if TYPE_CHECKING:
    from crossmem.harness.records import EpisodeRecord
    from crossmem.memory.memory import MemoryBackend
    from crossmem.streams import Stream

KEY: Key = ("brand", "oats")
NAME: Key = ("name", "cream", "thai")


def lesson(value: str = "X 1", version: str = "1", key: Key = KEY) -> Entry:
    return Entry(key, "celiac_brands", key[1], value, version, cacheable=True)


def node(number: int, metric: float = 1.0, *parents: int, **more: Any) -> Node:
    """A node that sent oats of a brand; refused for its brand unless its metric is 1."""
    given: dict[str, Any] = {
        "id": number,
        "episode": number,
        "operator": "improve",
        "parents": parents,
        "keys": (KEY,),
        "request": {"ingredients": [{"name": "oats", "brand": f"X {number}"}]},
        "plan": f"brand of oats: X {number}",
        "output": "{}",
        "metric": metric,
        "info": {
            "status": 200 if metric == 1.0 else 422,
            "violated": [] if metric == 1.0 else ["brand"],
            "stamps": {"celiac_brands": "1"},
        },
        "lessons": (lesson(f"X {number}"),) if metric == 1.0 else (),
    }
    return Node(**{**given, **more})


def selector(of: NodeJournal, *, faithful: bool = True) -> Selector:
    return Selector(of, deck(of, faithful=faithful), faithful, "0", lambda _: True)


def journal(*nodes: Node) -> NodeJournal:
    made = NodeJournal()
    for each in nodes:
        made.append(each)
    return made


def deck(of: NodeJournal, *, faithful: bool) -> Deck:
    made = Deck(faithful, domain("recipe"))
    for each in of.nodes:
        made.add(of, each)
    return made


@dataclass
class Lived:
    """What an arm did with a stream: the records, and the memory at the end."""

    stream: Stream
    records: list[EpisodeRecord]
    memory: MemoryBackend

    def attempts(self) -> int:
        return sum(record.row.attempts for record in self.records)

    def stale(self) -> int:
        return sum(record.row.stale_attempt for record in self.records)


@cache
def live(name: str, stream_name: str = "phase2_v4") -> Lived:
    """Replay a stream through an arm, once for all tests, against a real server."""
    settings = Phase1Settings(mock=True, model="haiku", keying="task")
    stream = streams.load(stream_name)
    with TemporaryDirectory() as folder, EmbeddedApi(stream.domain).serve(Path(folder) / "t") as over:
        agent = ScriptedAgent(settings.model, prompter_for(settings, stream, over[0]))
        replay = replay_of(settings, stream, TABLE[name], agent, over)
        records = [replay.episode(index) for index in range(len(stream.episodes))]
    return Lived(stream, records, replay.memory)


def fresh(name: str, stream: Stream) -> MemoryBackend:
    return TABLE[name].memory(domain(stream.domain), "task", "0/0")
