"""The client's one connection: finding an edge, noticing that it is lost, finding the next (BRK-C3, BRK-C5)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Protocol

from ordercast.client.candidates import Candidates
from ordercast.client.ports import ClientLedger
from ordercast.client.settings import ClientSettings, ns
from ordercast.core import chance
from ordercast.core.ids import Origin
from ordercast.core.process import Connection, Peer, Wires
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Attach, Ping, View

REQUEST, GRANT, RETRY, BEAT = "request", "grant", "retry", "beat"


class EdgeWatcher(Protocol):
    """Port that hears when the edge is found or lost."""

    def edge_found(self) -> None:
        """A broker has taken the Attach: tell it what this client is a member of."""

    def edge_lost(self, reason: str) -> None:
        """Nothing sent from here on arrives."""

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None: ...

    def awaits_grants(self) -> bool:
        """Whether some topic is not confirmed yet."""


class Edge(State):
    """The client's connection to its edge broker. Only one counts at a time; others are ignored."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "settings", "ledger", "watcher", "origin")

    def __init__(
        self, origin: Origin, addresses: tuple[str, ...], wires: Wires, settings: ClientSettings,
        ledger: ClientLedger, watcher: EdgeWatcher, attach_no: int,
    ) -> None:  # fmt: skip
        self.origin = origin
        self.wires = wires
        self.settings = settings
        self.ledger = ledger
        self.watcher = watcher
        self.attach_no = attach_no
        self.ticket, self.seal = "", b""
        """BRK-F1: what the next Attach shows."""
        self.candidates = Candidates(addresses)
        self.connection: Connection | None = None
        self.address = ""
        self.broker = ""
        self.attached = False
        """The broker has answered the Attach with a View."""
        self.failing_over = False
        """An edge was lost and the next one is not found yet."""
        self.heard_ns = 0
        self.beat_ns = 0
        self.passes = 0
        self.in_vain = 0
        """Edges given up in a row because a topic stayed unconfirmed."""

    def show(self, ticket: str, seal: bytes) -> None:
        """BRK-F1: from the next Attach on."""
        self.ticket, self.seal = ticket, seal

    def seek(self) -> None:
        """Begin a pass over all candidates."""
        self.candidates.restart(self.address)
        self._try_next()

    def _try_next(self) -> None:
        address = self.candidates.next()
        if address is None:
            self._pause()
            return
        self.attach_no += 1
        self.ledger.attach(self.attach_no)
        self.address = address
        self.broker = ""
        self.attached = False
        self.connection = self.wires.open(address)
        self.wires.set_timer(REQUEST, ns(self.settings.request_ms))

    def _pause(self) -> None:
        """BRK-C5: none left; rest a while, start over. The pauses of clients that lost the same edge must differ."""
        self.passes += 1
        self.watcher.nobody_answers(self.candidates.summary())
        part = chance.unit(chance.salt(0, self.origin, "retry", self.passes))
        self.wires.set_timer(RETRY, round(ns(self.settings.retry_ms) * (0.5 + part)))

    def opened(self, connection: Connection, peer: Peer) -> None:
        if connection != self.connection:
            return
        if peer.kind != "broker":
            self._give_up(f"{self.address} is a {peer.kind}, not a broker")
            return
        self.broker = peer.name
        self.wires.send(connection, Attach(self.attach_no, self.ticket, self.seal))

    def heard(self) -> None:
        """Something has arrived."""
        self.heard_ns = self.wires.now_ns

    def viewed(self, view: View) -> None:
        """BRK-C3. The first View on a connection means that the broker has taken the Attach."""
        self.candidates.learn(view)
        if self.attached:
            return
        self.attached = True
        if self.failing_over:
            self.failing_over = False
            self.wires.note("repair_end", {"broker": self.broker})
        self.wires.cancel_timer(REQUEST)
        self.heard_ns = self.beat_ns = self.wires.now_ns
        self.wires.set_timer(BEAT, ns(self.settings.ping_ms), background=True)
        self.watcher.edge_found()
        self.expect_grants()

    def expect_grants(self) -> None:
        """Topics were asked for: the edge has so long to have them confirmed."""
        if self.attached and self.watcher.awaits_grants():
            patience = ns(self.settings.grant_ms) << min(self.in_vain, 4)
            self.wires.set_timer(GRANT, patience)

    def granted(self) -> None:
        """A topic went live: this edge is not in vain, and perhaps nothing else is awaited."""
        self.in_vain = 0
        if not self.watcher.awaits_grants():
            self.wires.cancel_timer(GRANT)

    def closed(self, connection: Connection, *, gone: bool, reason: str) -> None:
        if connection == self.connection:
            self._lost(reason or ("nobody answers" if gone else "the broker closed the connection"), absent=gone)

    def timer(self, name: Hashable) -> None:
        if name == RETRY:
            self.seek()
        elif self.connection is None:
            return
        elif name == REQUEST:
            self._give_up(f"no answer within {self.settings.request_ms:g} ms")
        elif name == GRANT and self.watcher.awaits_grants():
            self.in_vain += 1
            self._give_up("a topic stays unconfirmed")
        elif name == BEAT:
            self._beat()

    def _beat(self) -> None:
        """Ask an idle edge whether it lives. A process that overslept has heard nothing and must not blame the edge."""
        now = self.wires.now_ns
        period = ns(self.settings.ping_ms)
        if now - self.beat_ns > 3 * period:
            self.heard_ns = now
        self.beat_ns = now
        silent = now - self.heard_ns
        if silent >= ns(self.settings.silence_ms):
            self._give_up(f"silent for {silent // 1_000_000} ms")
            return
        if silent >= period and self.connection is not None:
            self.wires.send(self.connection, Ping(now))
        self.wires.set_timer(BEAT, period, background=True)

    def begin_anew(self, reason: str) -> None:
        """Forget this edge's knowledge of the session: the next Attach says something else."""
        if self.connection is not None:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """End the connection and move on. Only a Unsubscribe takes leave of a topic; this does not."""
        assert self.connection is not None
        self.wires.close(self.connection, f"{self.origin} moves on: {reason}")
        self._lost(reason, absent=False)

    def _lost(self, reason: str, *, absent: bool) -> None:
        was_attached = self.attached
        self.stop_timers()
        self.connection = None
        self.attached = False
        if was_attached:
            self.failing_over = True
            self.wires.note("repair_start", {"lost": self.broker})
            self.watcher.edge_lost(f"{self.broker} at {self.address}: {reason}")
            self.seek()
            return
        self.candidates.failed(self.address, reason, absent=absent)
        self._try_next()

    def close(self, reason: str) -> None:
        """The client ends."""
        self.stop_timers()
        self.wires.cancel_timer(RETRY)
        if self.connection is not None:
            self.wires.close(self.connection, reason)
            self.connection = None
            self.attached = False

    def stop_timers(self) -> None:
        for name in (REQUEST, GRANT, BEAT):
            self.wires.cancel_timer(name)
