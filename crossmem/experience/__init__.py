"""The second family of memories: experience derived from attempts, and a budget that forgives.

A room of its own: the core of the study does not know it. Its arms are rows in `arms.py`, run by the
same harness, journalled and resumed by the same fold.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
