"""The benchmark's parts run, on sizes too small to time anything; bounds are for `make bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import bench
import bench_experience
import pytest
from bench import Ratio


@pytest.mark.parametrize(
    ("part", "bounded"),
    [
        (lambda: bench.replay(repetitions=1, episodes=3), 1),
        (lambda: bench.memory((10, 20, 30), repetitions=1), 12),
        (lambda: bench.invalidation(5, (5, 20), repetitions=1), 1),
        (lambda: bench_experience.experience((30, 60), repetitions=1), 3),
        (lambda: iter([bench_experience.amplification(30)]), 0),
    ],
    ids=["replay", "memory", "invalidation", "experience", "amplification"],
)
def test_a_part_measures_its_ratios(part: Callable[[], Iterator[Ratio]], bounded: int) -> None:
    measured = list(part())

    assert all(each.value > 0 for each in measured)
    assert sum(each.bound is not None for each in measured) == bounded


@pytest.mark.slow
def test_the_report_part_measures_notebooks_with_as_many_figures() -> None:
    (measured,) = bench.report(repetitions=1, parameters={"arms": "A0,A2"})

    assert measured.value > 0
    assert "empty with 3 figures" in measured.name


@pytest.mark.parametrize("name", ["LW", "A2", "A3"])
@pytest.mark.parametrize("what", ["recall", "observe"])
def test_a_batch_does_real_work_and_leaves_the_size_of_a_memory_as_it_is(name: str, what: str) -> None:
    filled = bench.Filled(name, 50)
    before = filled.memory.store.count, filled.memory.store.bytes
    learned = filled.memory.store._order
    for repetition in range(3):
        filled.batch(what, repetition)()
    store = filled.memory.store

    assert store.count == before[0] == 50
    assert (store._order - learned == 3 * bench.BATCH) is (what == "observe")
    assert store.budget is None or store.bytes == store.budget == before[1]


def test_a_ratio_is_the_median_over_interleaved_repetitions() -> None:
    measured = bench.ratio("a", [(1.0, 2.0), (9.0, 3.0), (6.0, 6.0)], bound=1.0)

    assert measured.value == 1.0
    assert measured.holds
    assert "holds" in str(measured)


@pytest.mark.parametrize(("bound", "status"), [(1.5, 1), (2.0, 0), (None, 0)])
def test_a_ratio_out_of_bounds_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bound: float | None,
    status: int,
) -> None:
    monkeypatch.setattr(bench, "everything", lambda: iter([Ratio("what", 1.8, bound, "why")]))

    assert bench.main() == status
    assert ("DOES NOT HOLD" in capsys.readouterr().out) is (status == 1)
