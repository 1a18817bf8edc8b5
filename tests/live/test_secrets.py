"""A secret must not be found again: in no file, log, message or traceback of a live run."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from running import settings_of

from crossmem.agents.factory import agent_factory
from crossmem.agents.failures import ProviderError, redact
from crossmem.agents.messages import Message, Prompt
from crossmem.errors import CrossmemError

from .fakes import Answer, Provider, faulty
from .helpers import KEY, MODELS, live, report, start

if TYPE_CHECKING:
    from pathlib import Path

ECHO = Answer(status=401, error=f"invalid key {KEY}")
FAULTS = {
    "a wrong key": ECHO,
    "a refused request": Answer(status=400, error=f"odd: {KEY}"),
    "a broken answer": Answer(raw=b"<html>"),
    "a dropped connection": Answer({}, dropped=True),
    "no answer": Answer({}, after=30),
    "a refused key in an answer": Answer(words="no", stop="refusal"),
}


def assert_no_secret_below(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path


def chained(error: BaseException) -> list[BaseException]:
    """Return an error with all that is chained to it, shown by a plain traceback or not."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each not in found:
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("fault", [name for name in FAULTS if "in an answer" not in name])
def test_no_traceback_shows_the_key_even_with_the_locals_of_every_frame(
    provider: Provider, api: str, fault: str
) -> None:
    provider.script = lambda _: replace(FAULTS[fault], headers={"x-echo": KEY})
    prompt = Prompt("stable", "", {"type": "object"}, (Message("task", "Input Data:\n{}"),))
    with agent_factory(settings_of("phase1", model=MODELS[api])) as agents:
        assert agents.backend_of is not None
        with pytest.raises(ProviderError) as caught:
            agents.backend_of(0).ask(prompt, timeout=0.5)
    shown = [
        "".join(traceback.TracebackException.from_exception(each, capture_locals=True).format())
        for each in chained(caught.value)
    ]
    # The frames of this test hold its constants; those of the study are what is looked at.
    study = [part for text in shown for part in text.split('  File "') if "/crossmem/" in part[:200]]
    assert study
    assert KEY not in "".join(study)
    assert len(shown) == 1, "an SDK's error is chained, and holds the request with its headers"
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value)


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_file_log_or_message_holds_the_key_after_a_fault_in_mid_run(
    provider: Provider,
    results: Path,
    fault: str,
    api: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)

    provider.script = faulty(*[FAULTS[fault]] * 3, since=4)
    raised = ""
    try:
        live(model=MODELS[api], episode_timeout_s=1)
    except CrossmemError as error:
        raised = "".join(traceback.format_exception(error)) + "".join(map(str, chained(error)))
    assert bool(raised) == (fault == "a wrong key")
    assert KEY not in raised
    assert_no_secret_below(results)
    captured = capsys.readouterr()
    assert KEY not in captured.out + captured.err
    assert caplog.records
    assert KEY not in caplog.text
    assert KEY not in "".join(str(record.__dict__) for record in caplog.records)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["a wrong key", "a refused request"])
def test_no_report_holds_the_key(provider: Provider, tmp_path: Path, results: Path, fault: str) -> None:
    provider.script = faulty(*[FAULTS[fault]] * 2, since=4)
    html = tmp_path / "out" / "page.html"
    answer = report(html, "arms=A0", ANTHROPIC_LOG="debug", OPENAI_LOG="debug")
    assert (answer.returncode != 0) == (fault == "a wrong key"), answer.stderr
    assert KEY not in answer.stdout + answer.stderr
    assert html.is_file()
    assert html.with_suffix(".ipynb").is_file()
    assert_no_secret_below(tmp_path)
    assert "[ANTHROPIC_API_KEY]" in answer.stderr + html.read_text(encoding="utf-8") + "".join(
        path.read_text(encoding="utf-8") for path in results.rglob("*.jsonl")
    )


@pytest.mark.slow
def test_no_uncaught_traceback_holds_the_key(provider: Provider) -> None:
    provider.script = lambda _: ECHO
    out, err = start().communicate(timeout=60)
    assert "401: invalid key [ANTHROPIC_API_KEY]" in err
    assert KEY not in out + err


def test_a_placeholder_in_place_of_a_key_is_left_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {KEY}\n")
    assert redact(f"none of {KEY}!") == "none of [ANTHROPIC_API_KEY]!"
