"""Process machines under virtual time: connections that break, processes that die, stand still, return and part."""

from ordercast.sim.connections.casts import CastModel, Casts
from ordercast.sim.connections.latencies import LatencyOf, both_ways, by_region, drawn_pairs, same_everywhere
from ordercast.sim.connections.life import Build, Life, Process
from ordercast.sim.connections.world import Processes, Timing

__all__ = [
    "Build", "CastModel", "Casts", "LatencyOf", "Life", "Process", "Processes", "Timing", "both_ways", "by_region",
    "drawn_pairs", "same_everywhere",
]  # fmt: skip
