"""Runtime C: every interleaving of a small configuration."""

from ordercast.explore.faults import Faults, Toggle
from ordercast.explore.publications import Publication
from ordercast.explore.result import Counterexample, Exploration, Replay, Size
from ordercast.explore.run import explore, replay
from ordercast.explore.schedule import Schedule, read_schedule, write_schedule
from ordercast.explore.timing import scenario_of

__all__ = [
    "Counterexample",
    "Exploration",
    "Faults",
    "Publication",
    "Replay",
    "Schedule",
    "Size",
    "Toggle",
    "explore",
    "read_schedule",
    "replay",
    "scenario_of",
    "write_schedule",
]
