"""Any OpenAI-compatible model, a local one included: chat completions with a schema for the answer."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, cast

import openai

from crossmem.agents.base import Usage
from crossmem.agents.messages import (
    MAX_OUTPUT_TOKENS,
    Evidence,
    Message,
    Prompt,
    ProviderError,
    Reply,
    connection_error,
    error_inside,
    read_request,
    refused,
    text,
    tokens,
    unusable,
)
from crossmem.agents.prompts import request_text

_ADDRESS = "https://api.openai.com/v1"
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)\n?\s*```", re.DOTALL)


def client_for(base_url: str | None = None) -> openai.OpenAI:
    """Return a client of the endpoint that the standard environment variables name.

    `base_url` names a server of our own instead, which needs no key and is behind no proxy.
    """
    if base_url is None:
        # A server without keys is asked with some word all the same, for the SDK insists on one.
        return openai.OpenAI(
            max_retries=0,
            api_key=os.environ.get("OPENAI_API_KEY") or "none",
            base_url=os.environ.get("OPENAI_BASE_URL") or _ADDRESS,
        )
    direct = openai.DefaultHttpx2Client(trust_env=False)
    return openai.OpenAI(max_retries=0, base_url=base_url, api_key="none", http_client=direct)


@dataclass(frozen=True)
class Chat:
    """A model behind `/chat/completions`. `seed` is sent along; not every server heeds it."""

    client: openai.OpenAI
    model: str
    seed: int
    max_tokens: int = MAX_OUTPUT_TOKENS
    sdk: str = f"openai {openai.__version__}"
    counts_schema: bool = False

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, waiting at most `timeout` seconds for each part of the answer.

        Raises ProviderError.
        """
        system = "\n\n".join(filter(None, [prompt.stable, prompt.memory]))
        messages = [{"role": "system", "content": system}, *map(_message, prompt.said)]
        schema = {"name": prompt.tool.name, "schema": prompt.schema}
        try:
            completion = self.client.chat.completions.create(
                model=self.model,
                messages=cast("Any", messages),
                response_format=cast("Any", {"type": "json_schema", "json_schema": schema}),
                max_completion_tokens=min(self.max_tokens, prompt.tool.max_tokens),
                seed=self.seed,
                timeout=timeout,
            )
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            failure = _failure(error)
        else:
            known = isinstance(completion, openai.types.chat.ChatCompletion)
            inside = error_inside(completion.model_extra or {}) if known else None
            if known and inside is None:
                return _reply(completion, prompt.schema)
            failure = inside or unusable(completion)
        raise failure


def _failure(error: Exception) -> ProviderError:
    if isinstance(error, openai.APIStatusError):
        return refused(error.response)
    if isinstance(error, openai.APIConnectionError):
        return connection_error(error, late=isinstance(error, openai.APITimeoutError))
    return unusable(error)


def _message(said: Message) -> dict[str, Any]:
    match said.kind:
        case "request":
            return {"role": "assistant", "content": request_text(said.request)}
        case "words":
            return {"role": "assistant", "content": said.text or "(no answer)"}
        case "refusal":
            return {"role": "user", "content": f"The API refused the request:\n{said.text}"}
        case _:
            return {"role": "user", "content": said.text}


def _reply(completion: openai.types.chat.ChatCompletion, schema: dict[str, Any]) -> Reply:
    choice: Any = completion.choices[0] if completion.choices else None
    message = choice.message if choice else None
    words = text(message.content if message else None)
    stop = choice.finish_reason if choice else None
    request, problem = _read(words, stop, schema)
    usage: Any = completion.usage
    cached = tokens(getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None))
    return Reply(
        request=request,
        words=words,
        problem=problem,
        usage=Usage(
            input=tokens(tokens(getattr(usage, "prompt_tokens", None)) - cached),
            output=tokens(getattr(usage, "completion_tokens", None)),
            cache_read=cached,
        ),
        evidence=Evidence(
            model=completion.model,
            stop_reason=stop,
            request_id=completion._request_id,  # noqa: SLF001 (public by the SDK's documentation)
            usage=usage.model_dump(exclude_none=True, warnings=False) if usage else None,
        ),
    )


def _read(
    words: str, stop: str | None, schema: dict[str, Any]
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the request that an answer holds, and the problem with it if there is one."""
    if stop != "stop":
        return None, f"the model stopped with {stop} and sent no whole request"
    fenced = _FENCE.fullmatch(words.strip())
    try:
        sent = json.loads(fenced[1] if fenced else words)
    except (ValueError, RecursionError):
        return None, "the answer is no JSON"
    return read_request(sent, schema)
