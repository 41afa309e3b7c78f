"""Hands a batch of packets from one peer to the machine, and decides how far to go when some make no sense."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox
from ordercast.core.messages import Packet


def handle_batch(machine: Machine, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> list[PeerError]:
    """Have the machine take the packets; what it found wrong.

    Nonsense of the peer's own ends its batch: part of it may have taken effect, so it can neither be repeated nor
    continued. A machine may also find out only now that an earlier packet of another peer made no sense. This peer has
    done nothing wrong then, and the rest of its batch would never come again, so it is handled.
    """
    if type(machine).on_receive_many is not Machine.on_receive_many:
        try:
            machine.on_receive_many(peer, packets, out)
        except PeerError as error:
            return [error]
        return []
    errors: list[PeerError] = []
    receive = machine.on_receive
    for packet in packets:
        try:
            receive(peer, packet, out)
        except PeerError as error:
            errors.append(error)
            if error.peer == peer:
                break
    return errors
