"""Links that take time although both processes are on one machine."""

from __future__ import annotations

import asyncio
import time

from ordercast.net.wire.settings import WireSettings
from tests.support.loop import run_async, until
from tests.support.wires import Process, running

SLOW = WireSettings(delay_ms={"b2 b1": 60.0})


def test_what_two_processes_send_each_other_arrives_later_and_in_order() -> None:
    async def main() -> None:
        b1, b2, b3 = (Process(name, settings=SLOW) for name in ("b1", "b2", "b3"))
        async with running(b1, b2, b3):
            slow, quick = b2.dial(b1), b3.dial(b1)
            await until(lambda: len(b1.scribe.peers) == 2)
            start = time.monotonic()
            for i in range(50):
                b2.say(slow, str(i))
                await asyncio.sleep(0)
            b3.say(quick, "first")
            await until(lambda: len(b1.scribe.heard) == 51)
            assert time.monotonic() - start >= 0.06
            assert b1.scribe.heard == ["first", *map(str, range(50))]
            start = time.monotonic()
            (back,) = (connection for connection, peer in b1.scribe.peers.items() if peer.name == "b2")
            b1.say(back, "answer")
            await until(lambda: b2.scribe.heard == ["answer"])
            assert time.monotonic() - start >= 0.06

    run_async(main)


def test_a_goodbye_does_not_overtake_what_was_said_before_it() -> None:
    async def main() -> None:
        b1, b2 = Process("b1", settings=SLOW), Process("b2", settings=SLOW)
        async with running(b1, b2):
            connection = b2.dial(b1)
            await until(lambda: b1.scribe.names() == ["b2"])
            b2.say(connection, "last words")
            b2.host.turn(b2.host.close, connection, "enough")
            await until(lambda: b1.scribe.ends == [(False, "enough")])
            assert b1.scribe.heard == ["last words"]

    run_async(main)
