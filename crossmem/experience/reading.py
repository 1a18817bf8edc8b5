"""What a model would read of a memory before one episode, as it stood in the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from crossmem import streams
from crossmem.analysis import metrics
from crossmem.errors import InputError
from crossmem.experience.settings import arm_of
from crossmem.harness.history import memory_before_prompt
from crossmem.memory.entry import Rendered

if TYPE_CHECKING:
    from crossmem.harness.results import Run


@dataclass(frozen=True)
class Texts:
    """The memory blocks of several arms before one episode."""

    episode: int
    task: str
    blocks: dict[str, str]

    def __str__(self) -> str:
        return "\n\n".join(f"{arm}\n{text}" for arm, text in self.blocks.items())

    def _repr_html_(self) -> str:
        head = f"<p>Before episode {self.episode}: {escape(self.task)}</p>"
        blocks = (
            f"<p><strong>{escape(arm)}</strong></p>"
            f'<pre style="white-space: pre-wrap">{escape(text or "(nothing)")}</pre>'
            for arm, text in self.blocks.items()
        )
        return f"{head}{''.join(blocks)}"


def read(run: Run, *arms: str, episode: int | None = None) -> Texts:
    """Return what each of `arms` put before the agent at `episode`.

    Without one it is the second episode after the first drift that consults the drifting table: the
    drift has been exposed by then. Raises InputError for an arm that the run lacks or that words
    nothing itself, and where the run has no such episode.
    """
    if episode is None:
        rows = metrics.episodes(run)
        after = rows[(rows["drift_epoch"] == 1) & (rows["family"] == metrics.slot_family(run))]
        consulting = sorted(after["index"].unique())
        if len(consulting) < 2:
            raise InputError(f"{run.path.name} has no second episode after a drift; name an episode")
        episode = int(consulting[1])
    known = streams.load(run.config["stream"]).episodes
    if not 0 <= episode < len(known):
        raise InputError(f"episode {episode}: the run has episodes 0 to {len(known) - 1}")
    task = known[episode].task
    blocks = {}
    for arm in arms:
        recalled = memory_before_prompt(run, arm_of(run, arm), episode).recall(task)
        if not isinstance(recalled, Rendered):
            raise InputError(f"{arm} puts entries before the agent and has no words of its own")
        blocks[arm] = recalled.text
    return Texts(episode, task.description, blocks)
