"""The handful of names a notebook uses, loaded when first touched so that the import stays fast."""

from __future__ import annotations

__version__ = "0.1.0"
