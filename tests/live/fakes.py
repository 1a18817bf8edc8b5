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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jsonpointer import set_pointer

from crossmem.contract import read_response
from crossmem.domains import domain
from crossmem.domains.base import Task, merged
from crossmem.experience.summaries import FIELDS

RECIPE = domain("recipe")
MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"


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
    def chat(self) -> bool:
        """Whether it is a chat completion that is asked for, not one of Anthropic's messages."""
        return self.path == CHAT

    @property
    def system(self) -> str:
        if self.chat:
            return str(self.body["messages"][0]["content"])
        return "\n\n".join(block["text"] for block in self.body["system"])

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
        asked_for = self.body["response_format"]["json_schema"] if self.chat else self.body["tools"][0]
        return str(asked_for["name"])

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The API's answer to the last request, None where there is none yet."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, list):
            return _json(content[0]["content"])
        before, _, refusal = content.partition("The API refused the request:\n")
        return None if before else _json(refusal)

    @property
    def sent(self) -> dict[str, Any]:
        """The model's last request."""
        content = self.body["messages"][-2]["content"]
        found: dict[str, Any] = json.loads(content) if self.chat else content[0]["input"]
        return found


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


def _json(text: str) -> dict[str, Any] | None:
    """Read the JSON that a text begins with: a memory's reminder may follow it."""
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _body(asked: Asked, answer: Answer) -> bytes:
    if answer.status != 200:
        error = {"type": f"error_{answer.status}", "message": answer.error}
        return json.dumps({"type": "error", "error": error}).encode()
    content = (_completion if asked.chat else _message)(asked, answer)
    content["model"] = answer.served or asked.body["model"]
    if answer.usage is ...:
        del content["usage"]
    elif answer.usage != ():
        content["usage"] = answer.usage
    return json.dumps(content).encode()


def _message(asked: Asked, answer: Answer) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if answer.words is not None:
        blocks.append({"type": "text", "text": answer.words})
    if answer.request is not None:
        called = {"type": "tool_use", "id": f"toolu_{asked.number}", "name": asked.tool}
        blocks.append({**called, "input": answer.request})
    read, written = len(asked.raw) // 4, len(json.dumps(answer.request)) // 4
    return {
        "id": f"msg_{asked.number}",
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": answer.stop or ("tool_use" if answer.request is not None else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _completion(asked: Asked, answer: Answer) -> dict[str, Any]:
    content = json.dumps(answer.request) if answer.request is not None else answer.words
    read, written = len(asked.raw) // 4, len(content or "") // 4
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.stop or "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


class Provider(ThreadingHTTPServer):
    """A provider at `url`. `script` may be changed at any time; `asked` is in order of arrival."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.script = script
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()

    def take(self, path: str, headers: Mapping[str, str], raw: bytes) -> Asked:
        with self._lock:
            self.asked.append(Asked(len(self.asked), path, headers, raw))
            return self.asked[-1]

    def calls(self) -> Counter[tuple[str, str]]:
        """Count the requests by task and memory block, the preflight left out."""
        return Counter((asked.task, asked.system) for asked in self.asked[1:])

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that went away."""


@contextmanager
def providing(script: Script = competent) -> Iterator[Provider]:
    """Serve both APIs on a free loopback port."""
    with Provider(script) as provider:
        thread = threading.Thread(target=provider.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            provider.closing.set()
            provider.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Provider

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        raw = self.rfile.read(length)
        self.close_connection = True  # unless the answer is given whole
        if len(raw) < length:  # whoever asked was killed
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = self.server.take(self.path, headers, raw)
        answer = self.server.script(asked)
        if not (answer.after and self.server.closing.wait(answer.after)):
            with suppress(ConnectionError):
                self.close_connection = not self._send(asked, answer)

    def _send(self, asked: Asked, answer: Answer) -> bool:
        """Send an answer; return whether it is whole."""
        body = answer.raw if answer.raw is not None else _body(asked, answer)
        number = f"req_{asked.number}"
        headers = {"Content-Type": "application/json", "request-id": number, "x-request-id": number}
        self.send_response(answer.status)
        for name, value in {**headers, **answer.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.dropped:
            self.wfile.write(body[: len(body) // 2])
            return False
        if not answer.trickle:
            self.wfile.write(body)
            self.wfile.flush()
            return True
        for byte in body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.closing.wait(answer.trickle):
                return False
        return True
