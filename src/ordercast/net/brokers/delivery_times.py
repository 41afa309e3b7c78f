"""Times from publisher to last hop, for the publications that a broker has handed to its own clients.

One publication of every packet is looked at, so that a broker under load does not spend its time on clocks. Times are
those of the publisher's and this machine's wall clocks: across machines they are as good as the clocks agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ordercast.core.messages import Guarantee

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS_NS = tuple(int(bound * 1e9) for bound in BOUNDS_S)
_LEVELS = (Guarantee.EVENTUAL, Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL)


class DeliveryTimes:
    """A histogram for each guarantee."""

    def __init__(self) -> None:
        self.counts = {level: [0] * (len(BOUNDS_S) + 1) for level in _LEVELS}
        self.sums_ns = dict.fromkeys(_LEVELS, 0)
        self.handed = dict.fromkeys(_LEVELS, 0)
        """Publications; those of one packet count with its last one."""

    def handed_on(self, level: Guarantee, count: int) -> None:
        """A packet with so many publications went to a client."""
        if level in self.handed:
            self.handed[level] += count

    def took(self, level: Guarantee, ns: int) -> None:
        if level in self.counts:
            self.counts[level][bisect_left(_BOUNDS_NS, ns)] += 1
            self.sums_ns[level] += ns

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        name = "ordercast_delivery_seconds"
        yield f"# HELP {name} Publisher to subscriber's broker connection, one message of every packet looked at."
        yield f"# TYPE {name} histogram"
        for level, counts in self.counts.items():
            so_far = 0
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
                so_far += count
                yield f'{name}_bucket{{guarantee="{level.label}",le="{bound}"}} {so_far}'
            yield f'{name}_sum{{guarantee="{level.label}"}} {self.sums_ns[level] / 1e9:.6f}'
            yield f'{name}_count{{guarantee="{level.label}"}} {so_far}'
        name = "ordercast_delivered_total"
        yield f"# HELP {name} Publications handed to clients; those of one packet count with its last one."
        yield f"# TYPE {name} counter"
        for level, handed in self.handed.items():
            yield f'{name}{{guarantee="{level.label}"}} {handed}'
