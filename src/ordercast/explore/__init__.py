"""Runtime C: every interleaving of a small configuration."""

from ordercast.explore.brokers.run import explore_brokers
from ordercast.explore.brokers.scope import BrokerScope
from ordercast.explore.overlays.run import explore_overlay
from ordercast.explore.overlays.scope import OverlayScope
from ordercast.explore.result import Counterexample, Exploration, Replay, Size
from ordercast.explore.run import explore, replay
from ordercast.explore.scope.faults import Faults, Toggle
from ordercast.explore.scope.publications import PlannedPublication
from ordercast.explore.stage.schedule import SteppedRun, read_schedule, write_schedule
from ordercast.explore.stage.timing import scenario_of

__all__ = [
    "BrokerScope",
    "Counterexample",
    "Exploration",
    "Faults",
    "OverlayScope",
    "PlannedPublication",
    "Replay",
    "Size",
    "SteppedRun",
    "Toggle",
    "explore",
    "explore_brokers",
    "explore_overlay",
    "read_schedule",
    "replay",
    "scenario_of",
    "write_schedule",
]
