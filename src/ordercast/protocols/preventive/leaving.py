"""Lets a process leave for good (PRV-6.9): it stays until somebody who stays has all that it had.

It says farewell over its safe links, after everything that it has delivered; who hears that has the rest, too, and says
so. Who leaves itself passes the farewells of others on with its own, and answers once that one was heard.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.process import Connection, OverlayWires
from ordercast.core.state import State
from ordercast.protocols.preventive.packets import Farewell, Heard
from ordercast.protocols.preventive.settings import PreventiveOptions

DEADLINE = ("leave",)
AGAIN = ("farewell",)


class Farewells(State):
    """The farewells of one process, and those that it has to answer."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "leave_ns", "again_ns")

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        self.wires = wires
        self.leave_ns = int(options.leave_ms * 1_000_000)
        self.again_ns = int(options.ack_ms * 1_000_000)
        self.under_way = False
        self.over = False
        """It goes in this turn."""
        self.heard = False
        """Somebody who stays has everything."""
        self.said = 0
        """Farewells so far: each covers more than the one before."""
        self.leavers: dict[Connection, tuple[int, int]] = {}
        """Who says farewell to this process: which one, and the own farewell that covers it."""

    def begin(self) -> None:
        """The process wants to go, and waits for at most `leave_ms`."""
        self.under_way = True
        self.wires.set_timer(DEADLINE, self.leave_ns)

    def say(self, safe: tuple[Connection, ...]) -> None:
        """Say farewell over these links, and again if nobody answers."""
        self.said += 1
        for connection in safe:
            self.say_on(connection)
        self.wires.set_timer(AGAIN, self.again_ns)

    def say_on(self, connection: Connection) -> None:
        """A link is in use: who is at its end may hear the farewell. Who leaves as well need not."""
        if self.under_way and self.said and connection not in self.leavers:
            self.wires.send(connection, Farewell(self.said))

    def met(self, connection: Connection, number: int, safe: tuple[Connection, ...]) -> None:
        """A neighbour says farewell: answer it, or first be heard with all that it had."""
        if not self.under_way:
            self.wires.send(connection, Heard(number))
            return
        self.leavers[connection] = number, self.said + 1
        self.say(safe)

    def answered(self, number: int) -> bool:
        """Somebody has heard a farewell; true if it covered those of all others, so that nothing is left."""
        for connection, (theirs, ours) in self.leavers.items():
            if ours <= number:
                self.wires.send(connection, Heard(theirs))
        if not self.under_way or self.over or any(ours > number for _, ours in self.leavers.values()):
            return False
        self.heard = True
        return True

    def lost(self, connection: Connection) -> None:
        self.leavers.pop(connection, None)

    def end(self) -> None:
        """The process goes, heard or not; whoever says farewell now needs somebody else."""
        self.under_way = self.over = True
        self.wires.cancel_timer(DEADLINE)
        self.wires.cancel_timer(AGAIN)
