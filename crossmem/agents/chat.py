"""Any OpenAI-compatible model, a local one included: chat completions with a schema for the answer."""

from __future__ import annotations

import json
import os
from typing import Any, cast

import openai

from crossmem.agents.backend import (
    MAX_OUTPUT_TOKENS,
    Evidence,
    Prompt,
    ProviderError,
    Reply,
    Said,
    off_schema,
    status_error,
)
from crossmem.agents.base import Usage
from crossmem.agents.prompts import request_text


class Chat:
    """A model behind `/chat/completions`.

    Key and address come from the standard environment variables unless `base_url` names a server of our
    own, which needs no key. `seed` is sent along; not every server heeds it.
    """

    def __init__(self, model: str, seed: int, base_url: str | None = None) -> None:
        self.model = model
        self.seed = seed
        self.sdk = f"openai {openai.__version__}"
        key = "none" if base_url else os.environ.get("OPENAI_API_KEY") or "none"
        self._client = openai.OpenAI(max_retries=0, base_url=base_url, api_key=key)

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, for at most `timeout` seconds; raises ProviderError."""
        system = "\n\n".join(filter(None, [prompt.stable, prompt.memory]))
        messages = [{"role": "system", "content": system}, *map(_message, prompt.said)]
        schema = {"name": "submit_request", "schema": prompt.schema}
        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                messages=cast("Any", messages),
                response_format=cast("Any", {"type": "json_schema", "json_schema": schema}),
                max_tokens=MAX_OUTPUT_TOKENS,
                seed=self.seed,
                timeout=timeout,
            )
        except openai.APIStatusError as error:
            raise status_error(error.status_code, error.message, error.response.headers) from None
        except openai.APIConnectionError as error:
            late = isinstance(error, openai.APITimeoutError)
            kind = "did not answer in time" if late else "cannot be reached"
            raise ProviderError(f"the provider {kind}: {error.message}", transient=True) from None
        except openai.OpenAIError as error:
            raise ProviderError(f"no usable answer: {type(error).__name__}: {error}") from None
        return _reply(completion, prompt.schema)


def _message(said: Said) -> dict[str, Any]:
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
    choice = completion.choices[0] if completion.choices else None
    words = (choice.message.content if choice else None) or ""
    stop = choice.finish_reason if choice else None
    request, problem = _read(words, stop, schema)
    usage = completion.usage
    details = usage.prompt_tokens_details if usage else None
    cached = (details.cached_tokens if details else None) or 0
    return Reply(
        request=request,
        words=words,
        problem=problem,
        usage=Usage(
            input=(usage.prompt_tokens - cached) if usage else 0,
            output=usage.completion_tokens if usage else 0,
            cache_read=cached,
        ),
        evidence=Evidence(
            model=completion.model,
            stop_reason=stop,
            request_id=completion._request_id,  # noqa: SLF001 (public by the SDK's documentation)
            usage=usage.model_dump(exclude_none=True) if usage else None,
        ),
    )


def _read(
    words: str, stop: str | None, schema: dict[str, Any]
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the request that an answer holds, and the problem with it if there is one."""
    if stop != "stop":
        return None, f"the model stopped with {stop} and sent no whole request"
    try:
        request = json.loads(words)
    except ValueError:
        return None, "the answer is no JSON"
    return request if isinstance(request, dict) else None, off_schema(request, schema)
