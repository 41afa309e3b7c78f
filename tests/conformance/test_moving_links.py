"""An overlay whose links change at run time keeps its promise in the simulator and over TCP alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ordercast.core.ids import NodeId
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.settings import WireSettings
from tests.support.loop import run_async, until
from tests.support.moving_links import CODEC, MOVES, MovingLinks
from tests.support.overlay_stage import GUARANTEE, OverlayStage, Players, RealStage, SimulatedStage

EACH = 5
EVERY_MS = 20.0
MOVING = Players(MovingLinks, CODEC, 8, EVERY_MS)

Stage = OverlayStage[MovingLinks]


async def simulated(_: Path) -> Stage:
    return SimulatedStage(MOVING, 1.0, 9.0)


async def over_tcp(directory: Path) -> Stage:
    return await RealStage(MOVING, directory).start()


@pytest.mark.parametrize("runtime", [simulated, over_tcp])
def test_everybody_delivers_everything_once_while_links_come_and_go(
    runtime: Callable[[Path], Awaitable[Stage]], tmp_path: Path
) -> None:
    async def main() -> None:
        stage = await runtime(tmp_path)
        try:
            for number in range(EACH):
                for name in stage.names:
                    stage.publish(name, b"%d" % number)
                await stage.wait(EVERY_MS * MOVES / EACH)

            def moved() -> bool:
                return all(machine.moves == MOVES for machine in stage.machines())

            await stage.all_get(EACH, also=moved, rounds=500, every_ms=EVERY_MS)
            assert moved(), "nobody's links stayed as they were"
        finally:
            await stage.stop()

    run_async(main)


def test_a_stranger_without_the_token_is_no_neighbour() -> None:
    async def main() -> None:
        friend, stranger = (
            OverlayHost(
                NodeId(name), MOVING.build, contacts, CODEC, GUARANTEE, WireSettings(),
                credentials=NodePlace("test", token).credentials(),
            )
            for name, token, contacts in (("a", b"a secret", ()), ("b", b"a guess", ()))
        )  # fmt: skip
        await friend.start("127.0.0.1:0")
        await stranger.start("127.0.0.1:0")
        stranger.turn(stranger.open, friend.me.address)
        await until(lambda: friend.counters["closed_handshake"] == 1)
        assert friend.connections == {}
        waiting = friend.publish("t", b"to myself")
        assert (await waiting).id == "a#1"
        await asyncio.gather(friend.stop(), stranger.stop())
        with pytest.raises(ConnectionError, match="a is stopped"):
            await friend.publish("t", b"too late")

    run_async(main)
