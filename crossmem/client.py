"""The HTTP client of one server: requests, versions, reload, and what the API discloses of itself."""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import httpx

from crossmem.contract import (
    Disclosure,
    Json,
    Response,
    TableDiff,
    read_disclosure,
    read_reload,
    read_response,
)
from crossmem.errors import CrossmemError

if TYPE_CHECKING:
    from types import TracebackType

    from crossmem.domains.base import Body

TIMEOUT_S = 30.0
MOST_WAITS = 3
LONGEST_WAIT_S = 8.0
"""For a 429 of the API under study: so often, and so long at most, it is waited and sent again."""


class ServerGoneError(CrossmemError):
    """The API does not answer any more; the run stops and can be resumed."""


class WrongEndpointError(CrossmemError):
    """What answers at the endpoint is not the API under study, or does not let us in."""


class NotServedError(CrossmemError):
    """The API of an arm did not start."""


@dataclass(frozen=True)
class Routes:
    """The paths of a server; `endpoints` maps ours to theirs where they differ."""

    endpoints: Mapping[str, str] = field(default_factory=dict)
    reload: str = "/admin/reload"
    token_header: str = "X-Admin-Token"  # noqa: S105
    versions: str | None = "/tables"


@dataclass
class ApiClient:
    """Speaks to one server over one kept-alive connection. The admin token is never shown."""

    url: str
    admin_token: str = field(repr=False)
    routes: Routes = field(default_factory=Routes)

    def __post_init__(self) -> None:
        # A context without certificates: the server is on this machine and speaks plain HTTP, and to
        # load them takes as long as thirty requests.
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._answered = False
        self._http = httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False, verify=plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def submit(
        self, endpoint: str, request: Body, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request and read the answer, accepted or not."""
        path = self._theirs(endpoint)
        for waited in itertools.count():
            answer = self._send("POST", path, json=request, headers=headers)
            if answer.status_code != 429 or waited == MOST_WAITS:
                break
            time.sleep(min(LONGEST_WAIT_S, _asked(answer, 0.25 * 2**waited)))
        self._refuse_at_first(path, answer.status_code)
        return read_response(answer.status_code, _json(answer))

    def _refuse_at_first(self, path: str, status: int) -> None:
        """Raise WrongEndpointError where the first answer says that this is no endpoint for us."""
        first, self._answered = not self._answered, True
        if first and (300 <= status < 400 or status in {401, 403, 404, 405}):
            raise WrongEndpointError(
                f"the API at {self.url} answers POST {path} with {status}: nothing was measured. Check "
                "the endpoint, its key and what stands before it"
            )

    def versions(self) -> Mapping[str, str]:
        """Read the version of every table; raises CrossmemError where the server tells none."""
        if self.routes.versions is None:
            raise CrossmemError(f"the API at {self.url} has no endpoint for versions")
        answer = self._send("GET", self.routes.versions)
        stamps = read_response(answer.status_code, _json(answer)).stamps
        if not (answer.is_success and stamps):
            where = f"GET {self.routes.versions}"
            raise CrossmemError(f"the API tells no versions: {where} gave {answer.status_code}")
        return stamps

    def reload(self) -> tuple[TableDiff, ...]:
        """Have the server read its table files again; return what changed.

        Raises CrossmemError where the server refuses the files.
        """
        answer = self._send(
            "POST", self.routes.reload, headers={self.routes.token_header: self.admin_token}
        )
        body = _json(answer)
        if not 200 <= answer.status_code < 300:
            reason = read_response(answer.status_code, body).detail
            raise CrossmemError(f"the server did not reload its tables: {answer.status_code} {reason}")
        return read_reload(body)

    def disclosure(self, endpoint: str) -> Disclosure:
        """Read the action vocabulary and the request schema of `endpoint` from the OpenAPI document."""
        return read_disclosure(_json(self._send("GET", "/openapi.json")), self._theirs(endpoint))

    def _theirs(self, endpoint: str) -> str:
        return self.routes.endpoints.get(endpoint, endpoint)

    def _send(
        self, method: str, path: str, *, json: Json = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        try:
            return self._http.request(method, path, json=json, headers=headers)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise ServerGoneError(f"the API at {self.url} does not answer {path}: {reason}") from error


def _asked(answer: httpx.Response, least: float) -> float:
    """Return the seconds that an answer asks to wait, `least` where it asks for less or nothing."""
    try:
        return max(least, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return least


def _json(answer: httpx.Response) -> Json:
    try:
        return answer.json()
    except ValueError:
        return None
