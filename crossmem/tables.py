"""How a table of figures is shown: words for columns, units, and a dash where a value is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crossmem import analysis

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd
    from pandas.io.formats.style import Styler

    from crossmem.results import Run

MISSING = "-"

_FORMATS = {
    "success_rate": ("success rate", "{:.0%}"),
    "first_try_rate": ("first-try rate", "{:.0%}"),
    "tokens_per_success": ("tokens per success", "{:,.0f}"),
    "peak_bytes": ("most bytes held", "{:,.0f}"),
}


def show(
    frame: pd.DataFrame,
    caption: str,
    columns: list[str] | None = None,
    percent: Collection[str] = (),
) -> Styler:
    """Return `frame` (the `columns` named, or all) ready to be displayed under `caption`.

    Columns in `percent` hold shares, beside the rates that are known to.
    """
    chosen = frame[columns] if columns else frame
    names = [str(name) for name in chosen]
    labels = {name: _FORMATS.get(name, (name.replace("_", " "), ""))[0] for name in names}
    formats: dict[Any, Any] = {
        labels[name]: "{:.0%}" if name in percent else _FORMATS.get(name, ("", _plain))[1]
        for name in names
    }
    named = chosen.rename(columns=labels)
    named.index.names = [str(name or "").replace("_", " ") for name in named.index.names]
    return named.style.format(formats, na_rep=MISSING).set_caption(caption)


def by_epoch(run: Run, figure: str, family: str | None = None) -> Styler:
    """Return one figure of `analysis.measure` as a table of arms by drift epochs."""
    label, form = _FORMATS.get(figure, (figure.replace("_", " "), _plain))
    of = f" in {family} episodes" if family else ""
    caption = f"{label.capitalize()}{of}, by drift epoch"
    table = analysis.by_epoch(run, figure, family)
    return table.style.format(form, na_rep=MISSING).set_caption(caption)


def stable_policies(run: Run) -> Styler:
    """Return the first-try rate of each family that the drifting table does not govern, by epoch."""
    import pandas as pd

    families = analysis.stable_families(run)
    tables = {family: analysis.by_epoch(run, "first_try_rate", family) for family in families}
    table = pd.concat(tables, names=["family"])
    return table.style.format("{:.0%}", na_rep=MISSING).set_caption("First-try rate by drift epoch")


def _plain(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
