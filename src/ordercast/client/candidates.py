"""The order in which a client tries brokers: its view by distance, the directory, the user's addresses (BRK-C5)."""

from __future__ import annotations

import re
from typing import ClassVar

from ordercast.core.state import State
from ordercast.pubsub.client_packets import View

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts b2 before b10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name) if part)


class Candidates(State):
    """The addresses still to be tried in this pass, and what became of the others."""

    constant: ClassVar[tuple[str, ...]] = ("configured",)

    def __init__(self, configured: tuple[str, ...]) -> None:
        self.configured = configured
        self.view = View(())
        self.left: list[str] = []
        self.failures: dict[str, tuple[str, bool]] = {}

    def learn(self, view: View) -> None:
        self.view = view

    def restart(self, lost: str = "") -> None:
        """Begin a pass. The broker that was just lost is asked last: it may come back, but others are there now."""
        near = sorted(self.view.neighbours, key=lambda neighbour: (neighbour.hops, natural(neighbour.node)))
        known = sorted(self.view.directory, key=lambda entry: natural(entry[0]))
        addresses = [n.address for n in near] + [address for _, address in known] + list(self.configured)
        ordered = [address for address in dict.fromkeys(addresses) if address]
        self.left = [address for address in ordered if address != lost]
        if lost:
            self.left.append(lost)
        self.failures = {}

    def next(self) -> str | None:
        return self.left.pop(0) if self.left else None

    def failed(self, address: str, why: str, *, absent: bool) -> None:
        self.failures[address] = (why, absent)

    def summary(self) -> tuple[tuple[str, str, bool], ...]:
        return tuple((address, why, absent) for address, (why, absent) in self.failures.items())
