"""Events that one part of the tree half reports and other parts act on; the `TreeHalf` hands them on."""

from __future__ import annotations

from typing import Protocol

from ordercast.core.ids import NodeId
from ordercast.core.process import Connection


class TreeEvents(Protocol):
    """Port that parts of the tree half report events to. The `TreeHalf` implements it and calls who acts on them."""

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """A connection to a broker is over, or a dial found nobody; `gone`: without a word."""

    def in_use(self, line: Connection) -> bool:
        """Whether a conversation is going on there, so that an idle-looking connection is kept."""

    def client_ended(self, connection: Connection, *, gone: bool) -> None:
        """The connection of a client is over."""

    def found_dead(self, node: NodeId, life: int, *, neighbour: bool, lines: list[Connection]) -> None:
        """The connections to a broker have ended without a word."""

    def somebody_died(self) -> None:
        """One broker less has to be waited for."""

    def broker_is_up(self, node: NodeId) -> None:
        """A broker has come back."""

    def remembers(self) -> None:
        """This broker's word counts again."""

    def step_down(self, why: str, hint: NodeId | None = None) -> None:
        """This root is to become a seeker."""

    def left_behind(self) -> None:
        """Others have gone on without this broker."""

    def stopped(self) -> None:
        """This broker has left: nothing concerns it any more."""
