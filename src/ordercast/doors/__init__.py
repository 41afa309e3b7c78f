"""Doors of a broker for those who do not speak its own protocol: clients of NATS, browsers, and whatever can do HTTP.

Whoever comes through a door becomes an ordinary client of the broker, in the broker's own process and with credentials
of its own: what is promised to clients, what they may do and what they may cost is the same as for all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.net.brokers.process import BrokerProcess, ForeignDoor


def open_doors(process: BrokerProcess) -> list[ForeignDoor]:
    """The doors that a broker was launched with; the code of the others is not even loaded."""
    launch = process.launch
    doors: list[ForeignDoor] = []
    if launch.nats:
        from ordercast.doors.nats.door import NatsDoor

        doors.append(NatsDoor(process.host, process.broker, launch.cluster.nats, launch.nats))
    if launch.web:
        from ordercast.doors.web.door import WebDoor
        from ordercast.doors.web.live import LiveView

        cluster = launch.cluster
        siblings = [entry.web for entry in cluster.broker if entry.web and entry.id != launch.id]
        live = LiveView(process.host, process.broker, cluster.admin_token, siblings)
        doors.append(WebDoor(process.host, cluster.web, launch.web, live))
    return doors
