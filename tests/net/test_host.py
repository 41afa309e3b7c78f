"""A node over TCP: whom it blames, and what its neighbours may conclude from what they hear."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from ordercast.core.messages import Packet
from ordercast.net.wire.connection import WireConnection
from ordercast.trace.journal import Journal
from tests.support.loop import run_async, until
from tests.support.net import Inbox, build_host, closing, connected

NAMES = ["n0", "n1", "n2"]


@pytest.mark.parametrize(("blamed", "banned"), [("n1", "n1"), ("n2", "n2"), ("a stranger", "n1")])
def test_the_peer_that_broke_the_protocol_is_shut_out_whoever_was_heard_last(blamed: str, banned: str) -> None:
    """A machine may notice late; where it blames nobody that can be shut out, whoever was heard has passed it on."""

    async def main() -> None:
        hosts = [build_host(name, NAMES) for name in NAMES]

        def complain(peer: NodeId, packet: Packet, out: Outbox) -> None:
            if peer == "n1":
                raise PeerError(blamed, "made no sense")

        async with closing(*hosts):
            addresses = {host.node: await host.listen() for host in hosts}
            for i, host in enumerate(hosts):
                await host.start({NodeId(name): addresses[NodeId(name)] for name in NAMES[i + 1 :]})
            await until(lambda: all(connected(hosts[0], name) for name in NAMES[1:]))
            hosts[0].machine.on_receive = complain  # type: ignore[method-assign]
            hosts[1].submit("t", b"well formed")
            channels = hosts[0].neighbours.channels
            await until(lambda: any(channel.banned for channel in channels.values()))
            assert [peer for peer, channel in channels.items() if channel.banned] == [banned]
            assert channels[NodeId(banned)].banned == "made no sense"

    run_async(main)


def test_nothing_that_says_what_was_received_leaves_before_it_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an acknowledgement nor the resumption of a channel: the peer will not send it again."""

    async def main() -> None:
        one, two = build_host("n0", NAMES[:2]), build_host("n1", NAMES[:2])
        happened: list[str] = []
        frames: dict[bytes, str] = {}
        new_frame, write, flush = one._host.new_frame, WireConnection._write, one._host.journal.flush

        def name_frame(packet: Packet) -> bytes:
            frames[new_frame(packet)] = type(packet).__name__
            return new_frame(packet)

        def log_write(connection: WireConnection, data: bytes) -> None:
            if connection._owner is one._host:
                said = [name for frame, name in frames.items() if frame in data]
                happened.extend([" and ".join(said)] if said else [])
            write(connection, data)

        def log_flush() -> None:
            happened.append("written")
            flush()

        monkeypatch.setattr(one._host, "new_frame", name_frame)
        monkeypatch.setattr(one._host.journal, "flush", log_flush)
        monkeypatch.setattr(WireConnection, "_write", log_write)
        async with closing(one, two):
            address = await two.listen()
            await one.listen()
            await two.start({})
            await one.start({NodeId("n1"): address})
            await until(lambda: connected(one, "n1"))
            two.submit("t", b"to be acknowledged")
            await until(lambda: any("ChannelAck" in what for what in happened))
        spoken = [i for i, what in enumerate(happened) if what != "written"]
        assert happened[spoken[0]] == "ChannelResume"
        assert all(happened[i - 1] == "written" for i in spoken)

    run_async(main)


class FullJournal(Journal):
    is_full = False

    def flush(self) -> None:
        if self.is_full and self.mark():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().flush()


def test_a_node_whose_journal_cannot_be_written_stops_and_says_which(tmp_path: Path) -> None:
    """What others knew of it would be missing in the trace."""

    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        journal = FullJournal(tmp_path / "journal", packets=False)
        one, two = build_host("n0", NAMES[:2], journal=journal), build_host("n1", NAMES[:2])
        heard = Inbox(two)
        async with closing(one, two):
            address = await two.listen()
            await one.listen()
            await two.start({})
            await one.start({NodeId("n1"): address})
            await until(lambda: connected(one, "n1"))
            journal.is_full = True
            one.submit("t", b"never leaves")
            await until(lambda: one.failure is not None)
            await until(lambda: not connected(two, "n0"))
        assert str(one.failure) == "the journal of n0: No space left on device"
        assert [context["exception"] for context in reported] == [one.failure]
        assert heard.messages == []

    run_async(main)
