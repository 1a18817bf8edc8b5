"""The names that notebooks and scripts use; `__init__.pyi` lists them, each is loaded when touched."""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
