"""Any model behind `/chat/completions`, with a schema for the answer; a local server is one too."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai
from openai.types.chat import ChatCompletion

from crossmem.agents.base import Usage
from crossmem.agents.failures import send
from crossmem.agents.messages import (
    MAX_OUTPUT_TOKENS,
    BackendFactory,
    Message,
    Prompt,
    Reply,
    read_request,
    reply,
    stopped_early,
    token_count,
    valid_text,
)
from crossmem.errors import InputError
from crossmem.memory.entry import canonical_json

if TYPE_CHECKING:
    from crossmem.domains.base import Body
    from crossmem.settings import RunSettings

_ADDRESS = "https://api.openai.com/v1"
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)\n?\s*```", re.DOTALL)


def check(settings: RunSettings) -> None:
    """Raise InputError where neither an endpoint nor a key is named."""
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        raise InputError(
            f"model {settings.model!r} needs OPENAI_BASE_URL (an OpenAI-compatible endpoint), "
            "OPENAI_API_KEY, or both"
        )


@contextmanager
def backends(settings: RunSettings, model: str) -> Iterator[BackendFactory]:
    """Yield what makes a replicate's backend, over the endpoint that the environment names."""
    with openai.OpenAI(
        max_retries=0,
        # A server without keys is asked with some word all the same, for the SDK insists on one.
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        base_url=os.environ.get("OPENAI_BASE_URL") or _ADDRESS,
    ) as client:
        yield lambda replicate: Chat(client, model, settings.seed + replicate)


@dataclass
class Chat:
    """A model behind `/chat/completions`. `seed` is sent along; not every server heeds it."""

    client: openai.OpenAI
    model: str
    seed: int
    max_tokens: int = MAX_OUTPUT_TOKENS
    sdk: str = f"openai {openai.__version__}"
    counts_schema: bool = False

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once; see `Backend`."""
        system = "\n\n".join(filter(None, [prompt.stable, prompt.memory]))
        turns = [{"role": each.role, "content": _content(each)} for each in prompt.messages]
        schema = {"name": prompt.tool.name, "schema": prompt.schema}
        answer = send(
            openai,
            openai.OpenAIError,
            self.client.chat.completions.create,
            ChatCompletion,
            model=self.model,
            messages=[{"role": "system", "content": system}, *turns],
            response_format={"type": "json_schema", "json_schema": schema},
            max_completion_tokens=min(self.max_tokens, prompt.tool.max_tokens),
            seed=self.seed,
            timeout=timeout,
        )
        return _reply(answer, prompt.schema)


def _content(message: Message) -> str:
    if message.kind == "request":
        return canonical_json(message.request)
    if message.kind == "refusal":
        return f"The API refused the request:\n{message.text}"
    return message.text


def _reply(answer: ChatCompletion, schema: dict[str, Any]) -> Reply:
    choices: Any = answer.choices if isinstance(answer.choices, list) else []
    choice = choices[0] if choices else None
    words = valid_text(getattr(getattr(choice, "message", None), "content", None))
    stop = getattr(choice, "finish_reason", None)
    read = _read(words, schema) if stop == "stop" else (None, stopped_early(stop))
    return reply(answer, stop, words, read, _usage)


def _read(words: str, schema: dict[str, Any]) -> tuple[Body | None, str | None]:
    """Return the request that a whole answer holds, and the problem with it if there is one."""
    fenced = _FENCE.fullmatch(words.strip())
    try:
        sent = json.loads(fenced[1] if fenced else words)
    except (ValueError, RecursionError):
        return None, "the answer is no JSON"
    return read_request(sent, schema)


def _usage(reported: dict[str, Any]) -> Usage:
    details = reported.get("prompt_tokens_details")
    cached = token_count(details.get("cached_tokens") if isinstance(details, dict) else None)
    uncached = token_count(token_count(reported.get("prompt_tokens")) - cached)
    return Usage(uncached, token_count(reported.get("completion_tokens")), cache_read=cached)
