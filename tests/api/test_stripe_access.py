"""Which Stripe a run uses: the emulator, or the test mode with a key that cannot move money."""

from __future__ import annotations

import subprocess
import sys

import pytest
import stripe

from crossmem.api.payments.access import StripeAccess, stripe_access
from crossmem.api.payments.emulator import emulating
from crossmem.api.payments.payments import Payments
from crossmem.errors import InputError

SECRET = "abcDEF123"


@pytest.fixture(autouse=True)
def _no_stripe_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)
    monkeypatch.delenv("STRIPE_API_BASE", raising=False)


@pytest.mark.parametrize("prefix", ["sk_live_", "rk_live_"])
def test_embedded_needs_no_key_and_a_live_one_is_refused_there_too(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stripe_access("embedded") is None
    monkeypatch.setenv("STRIPE_API_KEY", prefix + SECRET)
    with pytest.raises(InputError, match=rf"live-mode key \({prefix}") as caught:
        stripe_access("embedded")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("prefix", ["sk_test_", "rk_test_"])
def test_a_test_mode_key_reaches_stripe_itself(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", f" {prefix}{SECRET}\n")
    expected = StripeAccess("test", "https://api.stripe.com", prefix + SECRET)
    assert stripe_access("test") == expected
    assert SECRET not in repr(expected)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (f"sk_live_{SECRET}", r"live-mode key \(sk_live_"),
        (f"rk_live_{SECRET}", r"live-mode key \(rk_live_"),
        (f"pk_test_{SECRET}", "no test-mode key"),
        (SECRET, "no test-mode key"),
        ("sk_test_", "no test-mode key"),
        (f"sk_test_{SECRET} x", "no test-mode key"),
        (f"sk_test_ü{SECRET}", "no test-mode key"),
        (None, "needs a test-mode key .* in STRIPE_API_KEY"),
        ("", "needs a test-mode key .* in STRIPE_API_KEY"),
        ("  ", "needs a test-mode key .* in STRIPE_API_KEY"),
    ],
)
def test_what_is_no_test_mode_key_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, key: str | None, reason: str
) -> None:
    if key is not None:
        monkeypatch.setenv("STRIPE_API_KEY", key)
    with pytest.raises(InputError, match=reason) as caught:
        stripe_access("test")
    assert SECRET not in str(caught.value)


def test_an_unknown_mode_is_told_with_the_choices() -> None:
    with pytest.raises(InputError, match=r"unknown stripe 'live'.* embedded, test"):
        stripe_access("live")


def test_no_way_leads_around_the_check() -> None:
    with pytest.raises(InputError, match="no test-mode key") as caught:
        StripeAccess("test", "http://127.0.0.1:1", f"sk_live_{SECRET}")
    assert SECRET not in str(caught.value)


def test_another_address_may_be_named_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulating() as local:
        monkeypatch.setenv("STRIPE_API_KEY", f"sk_test_{SECRET}")
        monkeypatch.setenv("STRIPE_API_BASE", f"{local.base}/")
        access = stripe_access("test")
        assert access == StripeAccess("test", local.base, f"sk_test_{SECRET}")
        assert access is not None
        payments = Payments(access)
        assert payments.charge(500, "usd", "pm_card_visa", {}, None).status == "succeeded"
        payments.close()


@pytest.mark.parametrize(
    "base", ["http://stripe.example", "stripe.example", "https://", "https://u:p@x", "http://[::1"]
)
def test_an_address_that_would_carry_the_key_in_clear_is_refused(
    monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", f"sk_test_{SECRET}")
    monkeypatch.setenv("STRIPE_API_BASE", base)
    with pytest.raises(InputError, match="STRIPE_API_BASE"):
        stripe_access("test")


def test_stripe_python_reports_nothing_and_writes_nothing_at_home() -> None:
    assert stripe.enable_telemetry is False


def test_asking_for_access_loads_neither_stripe_nor_a_web_framework() -> None:
    code = (
        "import sys; from crossmem.api.payments.access import stripe_access; "
        "stripe_access('embedded'); "
        "sys.exit(bool({'stripe', 'fastapi', 'httpx', 'pydantic'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
