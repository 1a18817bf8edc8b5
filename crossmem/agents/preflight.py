"""The preflight: one production-shaped probe before a live run, and what it says of the provider.

Gateways can serve another model under the name asked for, and what their usage counts mean can change:
the evidence goes into the results file, so that its token columns can be read later.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

from crossmem.agents.failures import ProviderError
from crossmem.agents.live import opening
from crossmem.agents.messages import Backend, Reply
from crossmem.agents.prompts import Prompter, estimate_tokens
from crossmem.agents.retry import RetryPolicy
from crossmem.domains.base import Task
from crossmem.errors import CrossmemError

PLAUSIBLE_INPUT_SHARE = 0.25
"""Reported input below this share of the estimated prompt is implausible."""

DEADLINE_S = 60.0
"""A preflight is waited for by a person, so it has less time than an episode."""

NO_USAGE = "no usage was reported: tokens count as zero"


def preflight(
    backend: Backend, prompter: Prompter, task: Task, retry_policy: RetryPolicy
) -> dict[str, Any]:
    """Probe the model once with the first task and return the evidence, `warnings` included.

    Raises CrossmemError with the provider's message, in one line, where it gives no answer.
    """
    prompt = opening(prompter, task, ())
    limited = replace(
        retry_policy,
        deadline_s=min(DEADLINE_S, retry_policy.deadline_s),
        retried=frozenset({"transient"}),  # an address that nobody listens at is said at once
    )
    started = time.perf_counter()
    try:
        reply = limited.ask(lambda timeout: backend.ask(prompt, timeout), limited.until())
    except ProviderError as error:
        raise CrossmemError(f"preflight of {backend.model}: {error}") from None
    seconds = time.perf_counter() - started
    texts = [prompt.stable, prompt.messages[0].text]
    texts += [prompter.schema(task)] if backend.counts_schema else []
    estimated = sum(map(estimate_tokens, texts))
    return {
        "requested_model": backend.model,
        "served_model": reply.evidence["model"],
        # NaN and the infinities, which JSON has not, become None.
        "usage": json.loads(json.dumps(reply.reported), parse_constant=lambda _: None),
        "estimated_input_tokens": estimated,
        "request_id": reply.evidence["request_id"],
        "stop_reason": reply.evidence["stop_reason"],
        "latency_s": round(seconds, 3),
        "sdk": backend.sdk,
        "warnings": _warnings(backend.model, reply, estimated),
    }


def _warnings(model: str, reply: Reply, estimated: int) -> list[str]:
    found = []
    served = reply.evidence["model"]
    if served is None or not _same_model(model, served):
        found.append(f"asked for {model}, served {served or 'a model without a name'}")
    if reply.problem is not None:
        found.append(f"the probe got no usable request: {reply.problem}")
    if reply.evidence["usage"] == "missing":
        return [*found, NO_USAGE]
    usage = reply.usage
    if usage.output == 0:
        found.append("usage says that the answer had no tokens")
    read = usage.input + usage.cache_read + usage.cache_write
    if read < PLAUSIBLE_INPUT_SHARE * estimated:
        found.append(f"usage says {read} tokens of input for a prompt of about {estimated}")
    return found


def _same_model(asked: str, served: str) -> bool:
    """Tell whether `served` is the model asked for, or the dated version that it stands for.

    >>> _same_model("claude-haiku-4-5", "claude-haiku-4-5-20251001"), _same_model("m-4", "m-4-mini")
    (True, False)
    """
    version = re.escape(asked.removesuffix("-latest"))
    return served == asked or re.fullmatch(rf"{version}-\d[\d-]*", served) is not None
