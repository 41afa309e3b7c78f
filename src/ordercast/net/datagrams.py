"""The datagram socket of a process: what it casts leaves here, and what others cast to it arrives here.

The socket has the same address and port as the listener. A bounded number of datagrams is read at a time, so that
whoever floods it takes this process's time in turns with everybody else, and the system throws the rest away.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from zlib import crc32

from ordercast.core.chance import mix, unit
from ordercast.core.errors import InvariantError, PeerError, UsageError
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.core.wire import Codec
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import Credentials, join_address, split_address
from ordercast.net.wire.datagrams import DatagramSealer, Incoming, RefusedDatagramError, datagram_key
from ordercast.net.wire.settings import WireSettings, ns, seconds

LOG = logging.getLogger("ordercast.net")

_MANY_DATAGRAMS = 256
"""So many are read before others have their turn."""
_BUFFER_BYTES = 1 << 22
_COMPLAINT_PAUSE_MS = 5000.0
_MOST_PLACES = 65_536
_ATTEMPTS = 20
"""So many free ports are tried until one is free for datagrams, too."""

HandOver = Callable[[Peer, list[Packet]], None]


class Datagrams:
    """Casts packets as datagrams, and hands over those that are believed. All others are counted."""

    def __init__(
        self, door: socket.socket, me: Peer, credentials: Credentials, settings: WireSettings, codec: Codec,
        counters: Counter[str], hand_over: HandOver,
    ) -> None:  # fmt: skip
        """`door`: a bound datagram socket."""
        self._door = door
        self._me = me
        self._settings = settings
        self._codec = codec
        self._counters = counters
        self._hand_over = hand_over
        self._loop = asyncio.get_running_loop()
        key = datagram_key(credentials.peer_token.encode())
        self._outgoing = DatagramSealer(me, credentials.cluster, key, settings.datagram_bytes, time.time_ns() // 1000)
        self._incoming = Incoming(me, credentials.cluster, key, self._is_here)
        self._here = {_place_text(door.getsockname())}
        self._any_host = ipaddress.ip_address(door.getsockname()[0]).is_unspecified
        self._out: list[tuple[str, bytes]] = []
        self._places: dict[str, tuple[Any, str]] = {}
        """By address: where to send, and how that place is signed."""
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._complained_ns = 0
        """When it was complained last, and of how much more since."""
        self._complaints = 0
        self._loop.add_reader(door.fileno(), self._readable)
        self._find(me.address)

    def cast(self, address: str, frame: bytes) -> None:
        """Send the frame when the turn ends."""
        self._out.append((address, frame))

    def flush(self) -> None:
        out, self._out = self._out, []
        for address, frame in out:
            place = self._places.get(address) or self._find(address)
            if place is None:
                self._counters["casts_unresolved"] += 1
            else:
                self._send(*place, frame)

    def close(self) -> None:
        self._loop.remove_reader(self._door.fileno())
        for lookup in self._lookups.values():
            lookup.cancel()
        self._out.clear()
        self._door.close()

    def _send(self, place: Any, to: str, frame: bytes) -> None:
        try:
            for datagram in self._outgoing.datagrams(to, frame):
                self._door.sendto(datagram, place)
        except (BlockingIOError, InterruptedError):
            self._counters["casts_lost_full"] += 1
        except OSError as error:
            self._counters["casts_unsendable"] += 1
            self._complain(to, str(error))
        else:
            self._counters["casts_sent"] += 1

    # Places

    def _is_here(self, to: str) -> bool:
        if to in self._here:
            return True
        return self._any_host and to.rpartition(":")[2] == self._me.address.rpartition(":")[2]

    def _find(self, address: str) -> tuple[Any, str] | None:
        """The address of a peer, if it is known at once; a name is looked up, and what is cast meanwhile is lost."""
        try:
            host, port = split_address(address)
            literal = str(ipaddress.ip_address(host))
        except UsageError:
            return None
        except ValueError:
            if address not in self._lookups:
                self._lookups[address] = self._loop.create_task(self._look_up(address, host, port))
            return None
        return self._keep(address, (literal, port))

    async def _look_up(self, address: str, host: str, port: int) -> None:
        try:
            found = await self._loop.getaddrinfo(host, port, family=self._door.family, type=socket.SOCK_DGRAM)
            self._keep(address, found[0][4])
        except (OSError, UnicodeError) as error:
            self._complain(address, f"cannot be looked up: {error}")
        finally:
            self._lookups.pop(address, None)

    def _keep(self, address: str, place: Any) -> tuple[Any, str]:
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[address] = found = place, _place_text(place)
        if address == self._me.address:
            self._here.add(found[1])
        return found

    # Arrivals

    def _readable(self) -> None:
        most = self._settings.datagram_bytes + 1
        casts: dict[int, tuple[Peer, list[Packet]]] = {}
        for _ in range(_MANY_DATAGRAMS):
            try:
                data, source = self._door.recvfrom(most)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue  # An earlier datagram of ours could not be delivered; that is no news.
            self._take(data, source, casts)
        for peer, packets in casts.values():
            self._counters["casts_received"] += len(packets)
            self._pass_on(peer, packets)

    def _take(self, data: bytes, source: Any, casts: dict[int, tuple[Peer, list[Packet]]]) -> None:
        try:
            if self._settings.datagram_loss and unit(mix(0, crc32(data))) < self._settings.datagram_loss:
                return
            if len(data) > self._settings.datagram_bytes:
                said = f"sends a datagram of more than {self._settings.datagram_bytes} bytes (datagram_bytes)"
                raise RefusedDatagramError(str(source[0]), "oversized", said)
            found = self._incoming.take(data, str(source[0]))
            if found is not None:
                peer, body = found
                casts.setdefault(id(peer), (peer, []))[1].append(self._codec.decode(body, peer.name))
        except PeerError as error:
            why = error.why if isinstance(error, RefusedDatagramError) else "malformed"
            self.refused(error, f"casts_{why}")

    def _pass_on(self, peer: Peer, packets: list[Packet]) -> None:
        delay_ms = self._settings.delay_between(self._me.name, peer.name)
        if delay_ms:
            self._loop.call_later(seconds(delay_ms), self._hand_over, peer, packets)
        else:
            self._hand_over(peer, packets)

    def refused(self, error: PeerError, counter: str) -> None:
        """Count it, and complain now and then."""
        self._counters[counter] += 1
        self._complain(error.peer, error.reason)

    def _complain(self, peer: str, reason: str) -> None:
        """One line for all, now and then: anybody can send datagrams in anybody's name."""
        self._complaints += 1
        now = time.monotonic_ns()
        if not self._complained_ns or now - self._complained_ns >= ns(_COMPLAINT_PAUSE_MS):
            facts = {"node": self._me.name, "peer": peer, "reason": reason, "times": self._complaints}
            LOG.warning("datagrams", extra={"facts": facts})
            self._complained_ns, self._complaints = now, 0


def doors(listen: str | socket.socket, *, with_datagrams: bool) -> tuple[socket.socket, socket.socket | None]:
    """A listener, and a datagram socket at the same address and port if there is to be one."""
    anywhere = isinstance(listen, str) and listen.endswith(":0")
    for attempt in range(1, _ATTEMPTS + 1):
        listener = listening(listen) if isinstance(listen, str) else listen
        if not with_datagrams:
            return listener, None
        try:
            return listener, _datagram_door(listener)
        except OSError as error:
            if not anywhere or attempt == _ATTEMPTS:
                said = f"listen: {address_of(listener)}: no datagrams there: {error.strerror}"
                listener.close()
                raise UsageError(said) from None
            listener.close()
    raise InvariantError("one of the attempts is the last")


def _datagram_door(listener: socket.socket) -> socket.socket:
    door = socket.socket(listener.family, socket.SOCK_DGRAM)
    try:
        door.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            door.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        door.bind(listener.getsockname())
    except OSError:
        door.close()
        raise
    return door


def _place_text(place: Any) -> str:
    return join_address(str(place[0]), int(place[1]))
