"""The prompts, built by the same code for the scripted and the live agent.

Stable parts come first (role, base instruction, action vocabulary, request schema), then the memory
block, then the task: the part that repeats across episodes can be cached.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossmem.contract import Disclosure, Response
from crossmem.domains.base import Domain, Task
from crossmem.memory.entry import Entry, Rendered, canonical_json
from crossmem.settings import HintStyle

BASE_INSTRUCTION = (
    "On your first attempt, send the Input Data exactly as provided. If the API refuses a request, it "
    "answers with suggestions; each names an action, a field and the literal value to put there. Send "
    "the request again with these values merged in and everything else unchanged."
)

HINT_STYLES: dict[HintStyle, str] = {
    "append": (
        "Memory of earlier episodes. The fixes below worked before. Wherever one matches this task, "
        "prefer it over the Input Data."
    ),
    "amendment": (
        "Validated amendments to the Input Data. The API has confirmed the values below; they are part "
        "of the Input Data as provided. Wherever one matches this task, read the Input Data as amended."
    ),
}
"""The wording that introduces the memory block. `append` competes with the base instruction, which
asks for the Input Data as provided; `amendment` makes the remembered values part of it."""


@dataclass(frozen=True)
class Prompter:
    """Writes the prompts of one run."""

    domain: Domain
    disclosures: Mapping[str, Disclosure]
    """What the API says of each endpoint that the tasks go to."""
    hint_style: HintStyle

    def stable(self) -> str:
        """Return the part of the system prompt that is the same in every episode."""
        every = dict.fromkeys(a for each in self.disclosures.values() for a in each.actions)
        actions = "\n".join(f"- {action}" for action in every)
        return (
            f"{self.domain.role}\n\n{BASE_INSTRUCTION}\n\n"
            f"Actions that a suggestion may name:\n{actions}"
        )

    def memory_block(self, recalled: Sequence[Entry]) -> str:
        """Return the block that puts `recalled` before the agent, empty if there is nothing."""
        if isinstance(recalled, Rendered):
            return f"{HINT_STYLES[self.hint_style]}\n{recalled.text}" if recalled.text else ""
        if not recalled:
            return ""
        lines = [
            f"- {self.domain.describe(each.key)}: {canonical_json(each.value)}" for each in recalled
        ]
        return "\n".join([HINT_STYLES[self.hint_style], *lines])

    def task(self, task: Task) -> str:
        """Return the message that states the task."""
        return (
            f"{task.description}\n\nInput Data:\n{json.dumps(task.input, indent=1, ensure_ascii=False)}"
        )

    def refusal(self, response: Response, reminder: str = "") -> str:
        """Return the message that hands the API's answer back, and what memory says to that."""
        said = f"HTTP {response.status}" if response.body is None else canonical_json(response.body)
        return f"{said}\n\n{reminder}" if reminder else said

    def schema(self, task: Task) -> str:
        """Return the request schema as the model receives it with its tool."""
        return canonical_json(self.disclosed(task).request_schema)

    def disclosed(self, task: Task) -> Disclosure:
        """Return what the API says of the endpoint that `task` goes to."""
        return self.disclosures[self.domain.endpoint(task)]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of `text` as a quarter of its UTF-8 bytes, rounded up.

    A rule of thumb for English and JSON, used only where no model reports its usage.
    """
    return math.ceil(len(text.encode()) / 4)
