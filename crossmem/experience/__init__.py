"""The second family of memories: experience derived from attempts, and a budget that forgives.

A room of its own: the core of the study does not know it. Its arms are rows in `arms.py`, run by the
same harness, journalled and resumed by the same fold.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossmem.experience import findings as findings
    from crossmem.experience import hypotheses as hypotheses
    from crossmem.experience import measures as measures
    from crossmem.experience import pictures as pictures
    from crossmem.experience import reading as reading
    from crossmem.experience import stores as stores
    from crossmem.experience.settings import ExperienceSettings as ExperienceSettings
    from crossmem.harness.results import Run


_MODULES = {"findings", "hypotheses", "measures", "pictures", "reading", "stores"}


def run(**given: Any) -> Run:
    """Run or load the experience study; for its settings see `settings.py`, for errors `study.run`."""
    from crossmem import study
    from crossmem.experience import settings
    from crossmem.settings import read_settings

    return study.run(read_settings(settings.ExperienceSettings, given))


def __getattr__(name: str) -> Any:
    if name == "ExperienceSettings":
        from crossmem.experience.settings import ExperienceSettings

        return ExperienceSettings
    if name in _MODULES:
        return importlib.import_module(f"crossmem.experience.{name}")
    raise AttributeError(f"module 'crossmem.experience' has no attribute {name!r}")
