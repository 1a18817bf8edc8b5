"""The slot explorer: ipywidgets that choose a results file, an epoch and an arm, and open the slot."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from crossmem import paths
from crossmem.analysis import slots
from crossmem.errors import CrossmemError
from crossmem.harness import results

if TYPE_CHECKING:
    from pathlib import Path


class Explorer:
    """Three drop-downs and the opened slot; display it, or set `file`, `epoch` and `arm` by code."""

    def __init__(self, results_file: str = "latest", epoch: int | None = None, arm: str = "A2") -> None:
        """Start with a results file, an epoch (None = the first) and an arm.

        Raises InputError where the file is unusable, nothing in it drifted, or it lacks epoch or arm.
        """
        self.run = results.find(results_file)
        epoch = slots.epochs(self.run)[0] if epoch is None else epoch
        slots.opened(self.run, epoch, arm)
        self.file = widgets.Dropdown(description="results", options=self._files(), value=self.run.path)
        self.epoch = widgets.Dropdown(description="epoch")
        self.arm = widgets.Dropdown(description="arm")
        self.view = widgets.HTML()
        self._offer(epoch, arm)
        self.file.observe(self._open_file, "value")
        self.epoch.observe(self._show, "value")
        self.arm.observe(self._show, "value")
        self.box = widgets.VBox([widgets.HBox([self.file, self.epoch, self.arm]), self.view])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)

    @property
    def slot(self) -> slots.Folds:
        """The slot that is chosen, to be shown without the controls."""
        return slots.opened(self.run, self.epoch.value, self.arm.value)

    def _open_file(self, _: Any) -> None:
        try:
            self.run = results.load(self.file.value)
        except (
            CrossmemError
        ) as error:  # damaged in the middle, which its first and last line do not show
            self.view.value = f"<p>{escape(str(error))}</p>"
            return
        self._offer(self.epoch.value, self.arm.value)

    def _offer(self, epoch: int | None, arm: str) -> None:
        """Offer what the run has, keeping the choice where it has that too, else its first."""
        epochs, arms = slots.epochs(self.run), self.run.arms
        self._offering = True  # neither control may speak while the other still offers the old run
        self.epoch.options, self.arm.options = epochs, arms
        self.epoch.value = epoch if epoch in epochs else epochs[0]
        self.arm.value = arm if arm in arms else arms[0]
        self._offering = False
        self._show(None)

    def _show(self, _: Any) -> None:
        if not self._offering:
            self.view.value = self.slot._repr_html_()

    def _files(self) -> list[tuple[str, Path]]:
        """Return the results files in which something drifted, the newest first after this run's."""
        this = self.run.path
        others = [
            path
            for path, config in results.finished(paths.results())
            if config["drift_events"] and path.resolve() != this.resolve()
        ]
        return [(path.name, path) for path in (this, *others)]
