"""A proxy whose connections are datagrams that get lost and overtake each other, with numbers and repetitions on top.

What a TCP connection does in the kernel, in the open and over links as bad as a test wants: the bytes come out complete
and in order, or not at all.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from ordercast.core.chance import mix, unit
from tests.support.proxy import Address, Proxy, Way

_CHUNK = 700
_AGAIN_S = 0.02
_LATE_S = 0.008
_HEAD = struct.Struct("!I")
_END = b""


class ArqProxy(Proxy):
    """Every direction of every connection goes over two UDP sockets of its own."""

    def __init__(self, target: Address, *, loss: float, late: float, salt: int) -> None:
        super().__init__(target)
        self.loss = loss
        self.late = late
        self.salt = salt
        self.lost = self.overtaken = 0
        self._draws = 0

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, lifetime_bytes: int
    ) -> None:  # fmt: skip
        loop = asyncio.get_running_loop()
        receiver = _Receiver(self, writer)
        inlet, _ = await loop.create_datagram_endpoint(lambda: receiver, local_addr=("127.0.0.1", 0))
        sender = _Sender(self)
        outlet, _ = await loop.create_datagram_endpoint(
            lambda: sender, remote_addr=inlet.get_extra_info("sockname")[:2]
        )
        try:
            while data := await _read(reader):
                for start in range(0, len(data), _CHUNK):
                    sender.put(data[start : start + _CHUNK])
            sender.put(_END)
            await asyncio.wait({loop.create_task(receiver.ended.wait())}, timeout=5)
        finally:
            sender.stop()
            outlet.close()
            inlet.close()

    def let_through(self, send: Any, *arguments: Any) -> None:
        """Lose a datagram, or let others overtake it, or neither; chance belongs to its number."""
        self._draws += 1
        drawn = unit(mix(self.salt, self._draws))
        if drawn < self.loss:
            self.lost += 1
        elif drawn < self.loss + self.late:
            self.overtaken += 1
            asyncio.get_running_loop().call_later(_LATE_S, send, *arguments)
        else:
            send(*arguments)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except OSError:
        return _END


class _Sender(asyncio.DatagramProtocol):
    """Numbers what it sends, and sends it again until it is acknowledged."""

    def __init__(self, proxy: ArqProxy) -> None:
        self._proxy = proxy
        self._next = 0
        self._unheard: dict[int, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def put(self, chunk: bytes) -> None:
        self._unheard[self._next] = _HEAD.pack(self._next) + chunk
        self._send(self._next)
        self._next += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._again)

    def _send(self, number: int) -> None:
        self._proxy.let_through(self._now, self._unheard[number])

    def _now(self, datagram: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(datagram)

    def _again(self) -> None:
        for number in list(self._unheard)[:50]:
            self._send(number)
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._again) if self._unheard else None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        (heard,) = _HEAD.unpack(data)
        for number in [number for number in self._unheard if number < heard]:
            del self._unheard[number]

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Receiver(asyncio.DatagramProtocol):
    """Lets bytes out in the order of their numbers, and says how far it is."""

    def __init__(self, proxy: ArqProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._waiting: dict[int, bytes] = {}
        self._next = 0
        self.ended = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        (number,) = _HEAD.unpack_from(data)
        if number >= self._next:
            self._waiting[number] = data[_HEAD.size :]
        while (chunk := self._waiting.pop(self._next, None)) is not None:
            self._next += 1
            self._let_out(chunk)
        self._proxy.let_through(self._answer, _HEAD.pack(self._next), addr)

    def _answer(self, datagram: bytes, addr: Any) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(datagram, addr)

    def _let_out(self, chunk: bytes) -> None:
        if self._writer.is_closing():
            self.ended.set()
        elif chunk:
            self._writer.write(chunk)
        else:
            self.ended.set()
            if self._writer.can_write_eof():
                self._writer.write_eof()
