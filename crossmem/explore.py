"""The slot explorer: ipywidgets that choose a results file, an epoch and an arm, and open the slot."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from crossmem import analysis, paths, results, slots
from crossmem.errors import InputError


class Explorer:
    """Three drop-downs and the opened slot; display it, or set `file`, `epoch` and `arm` by code."""

    def __init__(self, results_file: str = "latest", epoch: int | None = None, arm: str = "A2") -> None:
        """Start with a results file, an epoch (None = the first) and an arm.

        Raises InputError where the file is unusable or nothing in it drifted.
        """
        self.run = results.find(results_file)
        self.file = widgets.Dropdown(
            description="results", options=_files(self.run), value=self.run.path
        )
        self.epoch = widgets.Dropdown(description="epoch")
        self.arm = widgets.Dropdown(description="arm")
        self.view = widgets.HTML()
        self._refill(epoch, arm)
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
        """Offer what the run has, keeping the choice where it has that too."""
        epochs = sorted(int(each) for each in analysis.slots(self.run)["drift_epoch"].unique())
        if not epochs:
            raise InputError(f"{self.run.path.name} has no stale-attempt slot: nothing drifted in it")
        chosen = epochs[0] if epoch is None else epoch
        slots.opened(self.run, chosen if epoch in epochs else epochs[0], arm)
        self.epoch.options, self.arm.options = epochs, self.run.arms
        self.epoch.value = chosen if chosen in epochs else epochs[0]
        self.arm.value = arm
        self._show(None)

    def _show(self, _: Any) -> None:
        if self.epoch.value is not None and self.arm.value is not None:
            self.view.value = self.slot._repr_html_()


def _files(first: results.Run) -> list[tuple[str, Any]]:
    """Return the usable results files by name, newest first."""
    found = {first.path: first.path.name}
    for path in sorted(
        paths.results().glob("*.json"), key=lambda p: p.stat().st_mtime_ns, reverse=True
    ):
        try:
            run = results.load(path)
        except InputError:
            continue
        if len(analysis.slots(run)):
            found[path] = path.name
    return [(name, path) for path, name in found.items()]
