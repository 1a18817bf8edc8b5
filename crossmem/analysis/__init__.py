"""What is made of a run's rows: frames, intervals, figures, findings, tables, slots."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
