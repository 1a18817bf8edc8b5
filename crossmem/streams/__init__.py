"""Streams: episodes, drift events and budgets to replay, and the plans they are written from."""

from crossmem.streams.model import BudgetStep as BudgetStep
from crossmem.streams.model import DriftEvent as DriftEvent
from crossmem.streams.model import Episode as Episode
from crossmem.streams.model import Stream as Stream
from crossmem.streams.model import digest as digest
from crossmem.streams.model import load as load
from crossmem.streams.model import names as names
from crossmem.streams.model import path_of as path_of
