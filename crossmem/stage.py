"""What one arm replays a stream on: a server of its own, the prompts, and memory and agent composed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from crossmem.agents.prompts import Prompter
from crossmem.api import tables_of
from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.domains import domain
from crossmem.run.episode import Replay
from crossmem.run.table_files import World, private_copy
from crossmem.settings import budget_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crossmem.agents.base import Agent
    from crossmem.api.payments.access import StripeAccess
    from crossmem.memory.arms import Arm
    from crossmem.settings import Parameters
    from crossmem.streams import Stream


@contextmanager
def world_of(
    stream: Stream, tables: Path, stripe: StripeAccess | None = None
) -> Iterator[tuple[ApiClient, World]]:
    """Yield a client of an embedded API of its own, over tables in `tables`, which must not exist."""
    world = private_copy(tables_of(stream.domain), tables, domain(stream.domain).companions)
    with (
        serving(stream.domain, tables, stripe) as server,
        ApiClient(server.url, server.admin_token) as api,
    ):
        yield api, world


def prompter_for(parameters: Parameters, stream: Stream, api: ApiClient) -> Prompter:
    """Return what writes the prompts, from what the API discloses of itself."""
    what = domain(stream.domain)
    endpoints = dict.fromkeys(what.endpoint(episode.task) for episode in stream.episodes)
    disclosures = {endpoint: api.disclosure(endpoint) for endpoint in endpoints}
    return Prompter(what, disclosures, parameters.hint_style)


def make_replay(
    parameters: Parameters,
    stream: Stream,
    arm: Arm,
    agent: Agent,
    over: tuple[ApiClient, World],
    replicate: int = 0,
) -> Replay:
    """Compose memory and agent of one arm over a server that is up."""
    what = domain(stream.domain)
    api, world = over
    return Replay(
        stream=stream,
        domain=what,
        memory=arm.memory(what, parameters.keying, f"{parameters.seed}/{replicate}"),
        agent=agent,
        api=api,
        world=world,
        budget=budget_steps(parameters.budget) or stream.budget,
        max_attempts=parameters.max_attempts,
        replicate=replicate,
    )
