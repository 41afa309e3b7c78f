"""Feeds the live page: snapshots of one broker, twice a second, with what has passed since the last one."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ordercast.broker.node import Broker
from ordercast.doors.web.events import send
from ordercast.net import http
from ordercast.net.brokers.broker_host import BrokerHost, TrafficWatch
from ordercast.net.brokers.delivery_times import BOUNDS_S
from ordercast.net.wire.credentials import is_loopback

_PAUSE_S = 0.5
_TOPICS = 40
_CONNECTIONS = 200


class LiveView:
    """Serves those who watch one broker. Notes are taken only while there is somebody."""

    def __init__(self, host: BrokerHost, broker: Broker, admin_token: str, siblings: Sequence[str]) -> None:
        self._host = host
        self._broker = broker
        self._token = admin_token
        self.siblings = tuple(siblings)
        """Where the pages of the other brokers are."""
        self._watchers = 0

    def admit(self, head: http.HttpRequest, remote: str) -> None:
        """A BadRequest unless the request may see what an admin port would show it."""
        if self._token:
            said = head.fields.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(said.encode(), self._token.encode()):
                raise http.BadRequest(401, "admin_token: needed as Authorization: Bearer TOKEN")
        elif not is_loopback(remote):
            raise http.BadRequest(403, "without an admin_token only this machine may watch")

    async def stream(self, writer: asyncio.StreamWriter, fields: list[tuple[str, str]]) -> None:
        """Snapshots until the other end goes."""
        own = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("Connection", "close")]
        writer.write(http.response_head(200, [*own, *fields]))
        if self._host.watch is None:
            self._host.watch = TrafficWatch()
        self._watchers += 1
        seen = (0, 0)
        try:
            while True:
                snapshot, seen = self.snapshot(seen)
                await send(writer, b"data: " + msgspec.json.encode(snapshot) + b"\n\n", self._host.settings)
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._host.watch = None

    def explain(self, message: str) -> dict[str, Any]:
        return {"broker": self._host.me.name, **self._broker.topics.explain(message)}

    def snapshot(self, seen: tuple[int, int]) -> tuple[dict[str, Any], tuple[int, int]]:
        """The broker now, with events and hops behind the numbers that were seen; and the numbers seen with it."""
        host, broker = self._host, self._broker
        events = [event for event in host.events if event.number > seen[0]]
        watch = host.watch
        hops = watch.since(seen[1]) if watch is not None else []
        overlay = broker.tree.status()
        picture = {
            "id": host.me.name,
            "ms": time.time_ns() // 1_000_000,
            "cluster": host.credentials.cluster,
            "siblings": self.siblings,
            "order_scope": broker.topics.settings.order_scope,
            "overlay": {name: overlay[name] for name in ("role", "term", "parent", "children", "known_dead")},
            "brokers": sorted(overlay["directory"]),
            "totals": broker.topics.totals(),
            "topics": {name: self._with_blockers(name, one) for name, one in broker.topics.status(_TOPICS).items()},
            "connections": self._connections(watch),
            "admitted": host.counters["entries_admitted"],
            "bounds": BOUNDS_S,
            "handed": {level.label: count for level, count in host.deliveries.handed.items()},
            "deliveries": {level.label: counts for level, counts in host.deliveries.counts.items()},
            "events": events,
            "hops": hops,
        }
        return picture, (events[-1].number if events else seen[0], hops[-1].number if hops else seen[1])

    def _with_blockers(self, topic: str, told: dict[str, Any]) -> dict[str, Any]:
        """Add whom a total waits for, where one waits."""
        shown = {name: told[name] for name in ("log", "pending", "held", "members", "roster", "flow_open")}
        if told["pending"]:
            shown["blockers"] = self._broker.topics.blockers(topic)
        return shown

    def _connections(self, watch: TrafficWatch | None) -> list[dict[str, Any]]:
        counts = watch.counts if watch is not None else {}
        wires = [wire for wire in self._host.connections.values() if wire.peer is not None]
        wires.sort(key=lambda wire: (-wire.queued_bytes, wire.name))
        return [
            {
                "peer": wire.name, "kind": wire.peer.kind, "queued": wire.queued_bytes,
                "came": counts.get((wire.name, True), 0), "went": counts.get((wire.name, False), 0),
            }
            for wire in wires[:_CONNECTIONS]
            if wire.peer is not None
        ]  # fmt: skip
