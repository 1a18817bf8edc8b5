"""The model providers: a file each, and its row here; a model's name says whose it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossmem.errors import InputError

if TYPE_CHECKING:
    from crossmem.agents.messages import Backend
    from crossmem.settings import RunSettings

    Backends = Iterator[Callable[[int], Backend]]


@dataclass(frozen=True)
class Provider:
    """How the models whose names begin with `prefix` are reached.

    `check` raises InputError where that cannot be; `backends` takes settings and a model's full name
    and yields what makes a replicate's backend. `most_at_once` bounds the arms that ask at once.
    """

    prefix: str
    check: Callable[[RunSettings], None]
    backends: Callable[[RunSettings, str], AbstractContextManager[Callable[[int], Backend]]]
    most_at_once: int | None = None
    address_variable: str | None = None
    """The environment variable that names another endpoint than the provider's own."""

    def fits(self, model: str) -> bool:
        """Tell whether a model is this provider's: `local` is a whole name, others are prefixes."""
        whole = bool(self.prefix) and not self.prefix.endswith("/")
        return model == self.prefix if whole else model.startswith(self.prefix)


def _check_local(settings: RunSettings) -> None:
    from crossmem.agents.providers.llamacpp import model_file

    model_file(settings.gguf)


@contextmanager
def _local(settings: RunSettings, _: str) -> Backends:
    from crossmem.agents.providers import llamacpp
    from crossmem.agents.providers.openai import Chat, client_for

    path = llamacpp.model_file(settings.gguf)
    with llamacpp.serving(path) as (address, name), client_for(address) as client:
        length = llamacpp.MAX_OUTPUT_TOKENS
        yield lambda replicate: Chat(client, name, settings.seed + replicate, length)


def _check_openai(settings: RunSettings) -> None:
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        raise InputError(
            f"model {settings.model!r} needs OPENAI_BASE_URL (an OpenAI-compatible endpoint), "
            "OPENAI_API_KEY, or both"
        )


@contextmanager
def _openai(settings: RunSettings, model: str) -> Backends:
    from crossmem.agents.providers.openai import Chat, client_for

    with client_for() as client:
        yield lambda replicate: Chat(client, model, settings.seed + replicate)


def _check_anthropic(settings: RunSettings) -> None:
    if not (os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
        raise InputError(
            f"mock=False asks for the live model {settings.model!r}, and there is no key for it. Three "
            "ways on: set ANTHROPIC_API_KEY; run with mock=True for the scripted agent; or model=local "
            f"for a small model on this machine (`make local` installs it){_other(settings.model)}"
        )


def _other(model: str) -> str:
    """Return the advice for a name that looks like no model of this provider, else nothing."""
    if model.startswith("claude") or model in {"haiku", "sonnet", "opus"}:
        return ""
    return f". A model of an OpenAI-compatible endpoint is named openai/{model}"


@contextmanager
def _anthropic(_: RunSettings, model: str) -> Backends:
    from crossmem.agents.providers.anthropic import Claude

    with closing(Claude(model)) as claude:
        yield lambda _: claude


PROVIDERS = (
    # A local model answers one request at a time: a second arm would spend its time in the queue.
    Provider("local", _check_local, _local, most_at_once=1),
    Provider("openai/", _check_openai, _openai, address_variable="OPENAI_BASE_URL"),
    Provider("", _check_anthropic, _anthropic, address_variable="ANTHROPIC_BASE_URL"),
)


def provider_of(model: str) -> Provider:
    """Return whose a model is: the row of its very name, else of its prefix, else the last."""
    return next(each for each in PROVIDERS if each.fits(model))
