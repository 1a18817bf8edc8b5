"""Model names: aliases, what stands behind a name, and whether it can be reached from here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from crossmem.agents.scripted import profile
from crossmem.errors import InputError

if TYPE_CHECKING:
    from crossmem.agents.messages import Backend
    from crossmem.settings import RunSettings

ALIASES = {"haiku": "claude-haiku-4-5", "sonnet": "claude-sonnet-4-6"}
LOCAL = "local"
CHAT_PREFIX = "openai/"


def full_name(model: str) -> str:
    """Return the id that a provider knows a model by.

    >>> full_name("haiku"), full_name("openai/some-model")
    ('claude-haiku-4-5', 'some-model')
    """
    return ALIASES.get(model, model).removeprefix(CHAT_PREFIX)


def label(settings: RunSettings) -> str:
    """Return what a results file's name says of the model."""
    name = f"mock-{settings.model}" if settings.mock else settings.model
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-")


def check(settings: RunSettings) -> None:
    """Raise InputError where the model of a run cannot be reached, saying what can."""
    from crossmem.agents.providers.llamacpp import model_file

    model = settings.model
    if settings.gguf and (settings.mock or model != LOCAL):
        raise InputError(f"gguf names the file of model=local; this run is of model {model!r}")
    if settings.mock:
        profile(model)
    elif model == LOCAL:
        model_file(settings.gguf)
    elif model.startswith(CHAT_PREFIX):
        if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
            raise InputError(
                f"model {model!r} needs OPENAI_BASE_URL (an OpenAI-compatible endpoint), "
                "OPENAI_API_KEY, or both"
            )
    elif not (os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
        raise InputError(
            f"mock=False asks for the live model {model!r}, and there is no key for it. Three ways on: "
            "set ANTHROPIC_API_KEY; run with mock=True for the scripted agent; or model=local for a "
            "small model on this machine (`make local` installs it)"
        )


@contextmanager
def backend_for(settings: RunSettings) -> Iterator[Callable[[int], Backend]]:
    """Yield what makes a replicate's backend; connections and a local server end with the block."""
    model = full_name(settings.model)
    if settings.model == LOCAL:
        from crossmem.agents.providers import llamacpp
        from crossmem.agents.providers.openai import Chat, client_for

        with (
            llamacpp.serving(llamacpp.model_file(settings.gguf)) as (address, name),
            client_for(address) as client,
        ):
            length = llamacpp.MAX_OUTPUT_TOKENS
            yield lambda replicate: Chat(client, name, settings.seed + replicate, length)
    elif settings.model.startswith(CHAT_PREFIX):
        from crossmem.agents.providers.openai import Chat, client_for

        with client_for() as client:
            yield lambda replicate: Chat(client, model, settings.seed + replicate)
    else:
        from crossmem.agents.providers.anthropic import Claude

        with closing(Claude(model)) as claude:
            yield lambda _: claude
