"""What a notebook or a script uses, listed in `__init__.pyi`; each name is loaded when first touched."""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
