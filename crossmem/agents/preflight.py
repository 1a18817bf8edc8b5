"""The preflight: one production-shaped probe before a live run, and what it says of the provider.

Gateways can serve another model under the name asked for, and what their usage counts mean can change:
the evidence goes into the results file, so that its token columns can be read later.
"""

from __future__ import annotations

import time
from typing import Any

from crossmem.agents.backend import Backend, ProviderError, Reply
from crossmem.agents.live import prompt
from crossmem.agents.patience import Patience
from crossmem.agents.prompts import Prompter, estimate_tokens
from crossmem.domains.base import Task
from crossmem.errors import CrossmemError

PLAUSIBLE_INPUT_SHARE = 0.25
"""Reported input below this share of the estimated prompt is implausible."""


def preflight(backend: Backend, prompter: Prompter, task: Task, patience: Patience) -> dict[str, Any]:
    """Probe the model once with the first task and return the evidence, `warnings` included.

    Raises CrossmemError with the provider's message, in one line, where it gives no answer.
    """
    probe = prompt(prompter, task, ())
    started = time.perf_counter()
    try:
        reply = patience.begin().ask(lambda timeout: backend.ask(probe, timeout))
    except ProviderError as error:
        raise CrossmemError(f"preflight of {backend.model}: {error}") from None
    seconds = time.perf_counter() - started
    estimated = sum(map(estimate_tokens, (probe.stable, prompter.schema(), probe.said[0].text)))
    return {
        "requested_model": backend.model,
        "served_model": reply.evidence.model,
        "usage": reply.evidence.usage,
        "estimated_input_tokens": estimated,
        "request_id": reply.evidence.request_id,
        "stop_reason": reply.evidence.stop_reason,
        "latency_s": round(seconds, 3),
        "sdk": backend.sdk,
        "warnings": _warnings(backend.model, reply, estimated),
    }


def _warnings(model: str, reply: Reply, estimated: int) -> list[str]:
    found = []
    served = reply.evidence.model
    if served is None or not served.startswith(model):
        found.append(f"asked for {model}, served {served or 'a model without a name'}")
    if reply.evidence.usage is None:
        found.append("no usage was reported: tokens count as zero")
        return found
    usage = reply.usage
    if usage.output == 0:
        found.append("usage says that the answer had no tokens")
    read = usage.input + usage.cache_read + usage.cache_write
    if read < PLAUSIBLE_INPUT_SHARE * estimated:
        found.append(f"usage says {read} tokens of input for a prompt of about {estimated}")
    return found
