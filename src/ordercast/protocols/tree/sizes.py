"""Header sizes of the baselines of LoCaMu as the source counts them, beside the bytes that the codec really needs.

Spec: "Cost" in docs/protocols/cbcast.md, causal-barriers.md and delta-neighbourhood.md. Like for LoCaMu itself, a node
or number counts four bytes, and message ids, names of topics, framing and acknowledgements count nothing.
"""

from __future__ import annotations

from ordercast.core.state import State
from ordercast.protocols.shared.sizes import WORD

ACK_BYTES = 4 * WORD
"""Of an acknowledgement of Delta-Neighbourhood."""


class HeaderTally(State):
    """The cost of the copies that a node has sent, by the source's count."""

    def __init__(self) -> None:
        self.copies = 0
        self.header_bytes = 0
        self.last = 0
        """Of the copy that is being sent."""

    def add(self, header_bytes: int) -> None:
        """Count a copy, before it is sent."""
        self.copies += 1
        self.header_bytes += header_bytes
        self.last = header_bytes


def changed_clock_bytes(groups: int, entries: int) -> int:
    """CBCAST: per group with a change a word, per changed entry two."""
    return WORD * groups + 2 * WORD * entries


def barrier_bytes(targets: int, entries: int) -> int:
    """Causal Barriers: two words a target, although its id needs one, and two per entry of every list."""
    return 2 * WORD * (targets + entries)


def entry_bytes(entries: int) -> int:
    """Delta-Neighbourhood: two words per entry of the list, those of skipped nodes included."""
    return 2 * WORD * entries
