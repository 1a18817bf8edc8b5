"""The names that a notebook uses: loaded when first touched, and what that does to the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import crossmem as cm

COUNT = "import crossmem as cm; cm.analysis; import gc; print(gc.get_freeze_count())"


def test_every_name_is_there_and_a_wrong_one_is_an_attribute_error() -> None:
    names = [name for name in dir(cm) if not name.startswith("_")]
    assert {"phase1", "analysis", "held", "notice", "show"} <= set(names)
    for name in names:
        assert getattr(cm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'phase4'"):
        _ = cm.phase4


@pytest.mark.parametrize(("kernel", "frozen"), [("import ipykernel; ", True), ("", False)])
def test_only_a_notebooks_kernel_has_its_collector_leave_what_is_loaded_alone(
    kernel: str, frozen: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", kernel + COUNT],
        check=True,
        capture_output=True,
        text=True,
    )
    assert (int(done.stdout) > 0) is frozen
