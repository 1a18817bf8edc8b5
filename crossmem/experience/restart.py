"""A restart in mid-stream: the attempt journal is saved and read back as the variant's file does it.

No arm of a run restarts. A finished run's memories are folded twice from its results file, one of each
pair restarted, and what both would put before the agent is compared. What a scripted agent sends hangs
on the entries alone; a text that differs can mislead only a model.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pandas as pd

from crossmem import streams
from crossmem.analysis import tables
from crossmem.analysis.prose import Prose
from crossmem.experience.arms import EXPERIENCE_ARMS
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.node import FaithfulFile, NodeFile
from crossmem.run import history
from crossmem.run.episode import reobserve, retell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crossmem.analysis.tables import Table
    from crossmem.experience.node import NodeJournal
    from crossmem.run.results import Run


def restarted(run: Run, before: int | None = None, arms: Iterable[str] | None = None) -> pd.DataFrame:
    """Return, per experience arm, how many prompts after a restart differ from those without one.

    Of `arms` alone where they are named, for it folds each memory twice.
    The restart is before the episode `before`, the middle of the stream if None. Counted over all
    replicates are the first prompts from there on, those whose `entries` differ, those whose text does,
    and the retries with the `reminders` that differ.
    """
    at = run.length // 2 if before is None else before
    named = run.arms if arms is None else arms
    counts = {arm: _compared(run, arm, at) for arm in named if arm in EXPERIENCE_ARMS}
    columns = ["prompts", "entries differ", "texts differ", "retries", "reminders differ"]
    table = pd.DataFrame(counts, index=columns).T.fillna(0).astype(int)
    table.index.name = "arm"
    return table


def differing(run: Run, before: int | None = None) -> Prose | Table:
    """Return the rows of `restarted` in which anything differs, or the words that nothing does."""
    table = restarted(run, before)
    columns = ["entries differ", "texts differ", "reminders differ"]
    rows = table[table[columns].any(axis="columns")]
    if rows.empty:
        return Prose((f"No prompt of {len(table)} memories of attempts differs after the restart.",))
    same = len(table) - len(rows)
    caption = f"Prompts that differ after the restart; none does in the {same} memories not listed"
    return tables.show(rows, caption)


def _compared(run: Run, arm: str, at: int) -> Counter[str]:
    found: Counter[str] = Counter()
    episodes = streams.load(run.config["stream"]).episodes
    for replicate in range(run.config["parameters"]["replicates"]):
        pair = [history.memory(run, arm, at, replicate) for _ in range(2)]
        _restart(pair[1])
        for index, attempts in history.attempts(run, arm, replicate).items():
            if index < at:
                continue
            task = episodes[index].task
            for attempt in attempts:
                for memory in pair:
                    retell(memory, attempt)
                if attempt is attempts[0]:
                    one, other = (memory.recall(task) for memory in pair)
                    found["prompts"] += 1
                    found["entries differ"] += one != other
                    found["texts differ"] += getattr(one, "text", "") != getattr(other, "text", "")
                else:
                    found["retries"] += 1
                    found["reminders differ"] += pair[0].remind(task) != pair[1].remind(task)
                for memory in pair:
                    reobserve(memory, task, attempt)
    return found


def _restart(memory: object) -> None:
    if isinstance(memory, ExperienceMemory):
        with TemporaryDirectory() as folder:
            save_and_load(memory.stores.journal, Path(folder) / "journal", memory.arm.faithful)


def save_and_load(journal: NodeJournal, path: Path, faithful: bool) -> None:  # noqa: FBT001
    """Put a journal through a file, as the faithful or the fixed variant has it."""
    if faithful:
        file = FaithfulFile(path)
        file.save(journal.nodes)
        journal.reload(file.restored())
    else:
        NodeFile(path).save(journal.nodes)
        journal.reload(NodeFile(path).load()[0].nodes)
