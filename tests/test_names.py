"""The names that a notebook uses are there, documented, and loaded only when touched."""

from __future__ import annotations

import inspect

import pytest

import crossmem as cm
from crossmem.settings import Phase2Settings


def test_every_name_is_there_and_a_wrong_one_is_an_attribute_error() -> None:
    names = [name for name in dir(cm) if not name.startswith("_")]
    assert {"analysis", "guard", "load", "memory_at", "notice", "phase1", "run", "show"} <= set(names)
    for name in names:
        assert getattr(cm, name) is not None
    with pytest.raises(AttributeError, match="phase4"):
        _ = cm.phase4  # type: ignore[attr-defined]


def test_a_name_stays_what_it_is_whatever_modules_are_imported() -> None:
    import crossmem.harness.log
    import crossmem.streams.plans.acme  # noqa: F401

    assert callable(cm.run)
    assert callable(cm.acme)


def test_a_phase_takes_the_settings_of_its_notebook_each_documented() -> None:
    assert set(inspect.signature(cm.phase2).parameters) == set(Phase2Settings.model_fields)
    for name, field in Phase2Settings.model_fields.items():
        assert f"    {name}: {field.description}" in str(cm.phase2.__doc__)
