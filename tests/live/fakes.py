"""Small HTTP servers that speak a provider's API: Messages, and chat completions.

What they answer is a script, a function of what was asked; the default one is a competent model, which
does what the scripted agent does with what it reads in the prompt. They keep all that was asked.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from jsonpointer import set_pointer

from crossmem.contract import read_response
from crossmem.domains import domain
from crossmem.domains.base import Task, merged
from crossmem.experience.summaries import FIELDS

RECIPE = domain("recipe")


@dataclass(frozen=True)
class Asked:
    """One request as a provider received it; `number` counts all requests from 0."""

    number: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    at: float = field(default_factory=time.monotonic)

    @cached_property
    def body(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.raw)
        return content

    @property
    def api(self) -> Api:
        return APIS[self.path]

    @property
    def system(self) -> str:
        return self.api.system(self.body)

    @property
    def task(self) -> str:
        """The first message, which names the episode: no two tasks of a stream read alike."""
        return str(next(m["content"] for m in self.body["messages"] if m["role"] == "user"))

    @property
    def input(self) -> dict[str, Any]:
        """The Input Data as provided."""
        content: dict[str, Any] = json.loads(self.task.partition("Input Data:\n")[2])
        return content

    @property
    def tool(self) -> str:
        """What the answer is asked for as."""
        return self.api.tool(self.body)

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The API's answer to the last request, None where there is none yet."""
        return self.api.refusal(self.body["messages"][-1])

    @property
    def sent(self) -> dict[str, Any]:
        """The model's last request."""
        return self.api.request(self.body["messages"][-2])


@dataclass(frozen=True)
class Answer:
    """What a provider answers: a request of the model's, words in its place, or an error.

    `served` is the name of the model served, None for the one asked for. `usage` replaces the usage
    reported, `...` leaves it out. `raw` replaces the whole body. `after` and `trickle` are seconds
    before the answer and between two of its bytes; `dropped` ends the connection half-way through.
    """

    request: Any = None
    words: str | None = None
    stop: str | None = None
    served: str | None = None
    usage: Any = ()
    status: int = 200
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    after: float = 0.0
    trickle: float = 0.0
    dropped: bool = False


Script = Callable[[Asked], Answer]


def competent(asked: Asked) -> Answer:
    """Answer as the scripted agent would: Input Data as amended, then as the refusals would have it.

    A summary it fills with what it was given to read.
    """
    if asked.tool == "keep_summary":
        return Answer({name: f"{name} of {asked.task[:60]}" for name in FIELDS})
    if asked.refusal is not None:
        feedback = read_response(422, asked.refusal)
        return Answer(merged(asked.sent, feedback.suggestions))
    body = asked.input
    for key, pointers in RECIPE.places(Task(id="", description="", input=asked.input)).items():
        line = f"- {re.escape(RECIPE.describe(key))}: (.*)"
        for value in re.findall(line, asked.system):
            for pointer in pointers:
                set_pointer(body, pointer, json.loads(value))
    return Answer(body)


def stubborn(asked: Asked) -> Answer:
    """Send what no API takes: the Input Data for nobody, whatever the refusals say."""
    return Answer({**asked.input, "cuisine": "none", "servings": {"from": 1, "to": 7}})


def faulty(*faults: Answer, then: Script = competent, since: int = 1) -> Script:
    """Answer from request `since` on with one fault after the other, otherwise as `then` does.

    Request 0 is the preflight of a run.
    """
    return lambda asked: (
        faults[asked.number - since] if 0 <= asked.number - since < len(faults) else then(asked)
    )


class Messages:
    """Anthropic's."""

    path: ClassVar = "/v1/messages"

    @staticmethod
    def tool(body: dict[str, Any]) -> str:
        return str(body["tools"][0]["name"])

    @staticmethod
    def system(body: dict[str, Any]) -> str:
        return "\n\n".join(block["text"] for block in body["system"])

    @staticmethod
    def refusal(message: dict[str, Any]) -> dict[str, Any] | None:
        if isinstance(message["content"], str):
            return None
        return _json(message["content"][0]["content"])

    @staticmethod
    def request(message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = message["content"][0]["input"]
        return found

    @staticmethod
    def answer(asked: Asked, answer: Answer) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        if answer.words is not None:
            blocks.append({"type": "text", "text": answer.words})
        if answer.request is not None:
            called = {"type": "tool_use", "id": f"toolu_{asked.number}", "name": asked.tool}
            blocks.append({**called, "input": answer.request})
        usage = {
            "input_tokens": len(asked.raw) // 4,
            "output_tokens": len(json.dumps(answer.request)) // 4,
        }
        return {
            "id": f"msg_{asked.number}",
            "type": "message",
            "role": "assistant",
            "model": answer.served or asked.body["model"],
            "content": blocks,
            "stop_reason": answer.stop or ("tool_use" if answer.request is not None else "end_turn"),
            "stop_sequence": None,
            "usage": usage if answer.usage == () else answer.usage,
        }


class ChatCompletions:
    """OpenAI's, as many others serve it."""

    path: ClassVar = "/v1/chat/completions"

    @staticmethod
    def tool(body: dict[str, Any]) -> str:
        return str(body["response_format"]["json_schema"]["name"])

    @staticmethod
    def system(body: dict[str, Any]) -> str:
        return str(body["messages"][0]["content"])

    @staticmethod
    def refusal(message: dict[str, Any]) -> dict[str, Any] | None:
        before, _, refusal = message["content"].partition("The API refused the request:\n")
        return None if before else _json(refusal)

    @staticmethod
    def request(message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(message["content"])
        return found

    @staticmethod
    def answer(asked: Asked, answer: Answer) -> dict[str, Any]:
        content = json.dumps(answer.request) if answer.request is not None else answer.words
        read, written = len(asked.raw) // 4, len(content or "") // 4
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        message = {"role": "assistant", "content": content, "refusal": None}
        return {
            "id": f"chatcmpl-{asked.number}",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": answer.served or asked.body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.stop or "stop"}],
            "usage": usage if answer.usage == () else answer.usage,
        }


Api = type[Messages] | type[ChatCompletions]
APIS: dict[str, Api] = {Messages.path: Messages, ChatCompletions.path: ChatCompletions}


def _json(text: str) -> dict[str, Any] | None:
    """Read the JSON that a text begins with: a memory's reminder may follow it."""
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


class Provider:
    """A provider at `url`. `script` may be changed at any time; `asked` is in order of arrival."""

    def __init__(self, url: str, closing: threading.Event) -> None:
        self.url = url
        self.closing = closing
        self.script: Script = competent
        self.asked: list[Asked] = []
        self._lock = threading.Lock()

    def take(self, path: str, headers: Mapping[str, str], raw: bytes) -> Asked:
        with self._lock:
            self.asked.append(Asked(len(self.asked), path, headers, raw))
            return self.asked[-1]

    def calls(self) -> Counter[tuple[str, str]]:
        """Count the requests by task and memory block, the preflight left out."""
        return Counter((asked.task, asked.system) for asked in self.asked[1:])


@contextmanager
def providing(script: Script = competent) -> Iterator[Provider]:
    """Serve both APIs on a free loopback port."""

    class Handler(_Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that went away
        provider = Provider(f"http://127.0.0.1:{server.server_port}", threading.Event())
        provider.script = script
        Handler.provider = provider
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            provider.closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    provider: Provider

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        if len(raw := self.rfile.read(length)) < length:  # whoever asked was killed
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = self.provider.take(self.path, headers, raw)
        answer = self.provider.script(asked)
        if answer.after and self.provider.closing.wait(answer.after):
            self.close_connection = True
            return
        try:
            self._send(asked, answer)
        except ConnectionError:
            self.close_connection = True

    def _send(self, asked: Asked, answer: Answer) -> None:
        body = answer.raw if answer.raw is not None else _body(asked, answer)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "request-id": f"req_{asked.number}",
            "x-request-id": f"req_{asked.number}",
            **answer.headers,
        }
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.dropped:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
        elif answer.trickle:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.provider.closing.wait(answer.trickle):
                    self.close_connection = True
                    return
        else:
            self.wfile.write(body)
            self.wfile.flush()


def _body(asked: Asked, answer: Answer) -> bytes:
    if answer.status != 200:
        error = {"type": f"error_{answer.status}", "message": answer.error}
        return json.dumps({"type": "error", "error": error}).encode()
    content = asked.api.answer(asked, answer)
    if answer.usage is ...:
        del content["usage"]
    return json.dumps(content).encode()
