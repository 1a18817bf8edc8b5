"""The slot explorer: ipywidgets that choose a results file, an epoch and an arm, and open the slot."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from crossmem import paths
from crossmem.analysis import metrics, slots
from crossmem.errors import InputError
from crossmem.harness import results


class Explorer:
    """Three drop-downs and the opened slot; display it, or set `file`, `epoch` and `arm` by code."""

    def __init__(self, results_file: str = "latest", epoch: int | None = None, arm: str = "A2") -> None:
        """Start with a results file, an epoch (None = the first) and an arm.

        Raises InputError where the file is unusable, nothing in it drifted, or it lacks epoch or arm.
        """
        self.run = results.find(results_file)
        first = _epochs(self.run)[0] if epoch is None else epoch
        slots.opened(self.run, first, arm)
        self.file = widgets.Dropdown(
            description="results", options=_files(self.run), value=self.run.path
        )
        self._filling = False
        self.epoch = widgets.Dropdown(description="epoch")
        self.arm = widgets.Dropdown(description="arm")
        self.view = widgets.HTML()
        self._refill(first, arm)
        self.file.observe(self._changed_file, "value")
        for control in (self.epoch, self.arm):
            control.observe(self._show, "value")
        self.box = widgets.VBox([widgets.HBox([self.file, self.epoch, self.arm]), self.view])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)

    @property
    def slot(self) -> slots.Folds:
        """The slot that is chosen, to be shown without the controls."""
        return slots.opened(self.run, self.epoch.value, self.arm.value)

    def _changed_file(self, _: Any) -> None:
        self.run = results.load(self.file.value)
        self._refill(self.epoch.value, self.arm.value)

    def _refill(self, epoch: int | None, arm: str) -> None:
        """Offer what the run has, keeping the choice where it has that too, else its first."""
        epochs, arms = _epochs(self.run), self.run.arms
        self._filling = True  # neither control may speak while the other still offers the old run
        try:
            self.epoch.options, self.arm.options = epochs, arms
            self.epoch.value = epoch if epoch in epochs else epochs[0]
            self.arm.value = arm if arm in arms else arms[0]
        finally:
            self._filling = False
        self._show(None)

    def _show(self, _: Any) -> None:
        if not self._filling:
            self.view.value = self.slot._repr_html_()


def _epochs(run: results.Run) -> list[int]:
    epochs = sorted(int(each) for each in metrics.slots(run)["drift_epoch"].unique())
    if not epochs:
        raise InputError(f"{run.path.name} has no stale-attempt slot: nothing drifted in it")
    return epochs


def _files(first: results.Run) -> list[tuple[str, Any]]:
    """Return the finished runs in which something drifted by file name, newest first."""
    found = {first.path: first.path.name}
    for path, config in results.finished(paths.results()):
        if path.resolve() != first.path.resolve() and config["drift_events"]:
            found[path] = path.name
    return [(name, path) for path, name in found.items()]
