"""Casts mean the same on every carrier: simulated, as datagrams, and over connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ordercast.core.process import CAST_BYTES
from ordercast.net.wire.settings import WireSettings
from ordercast.sim.connections import CastModel
from tests.support.loop import run_async
from tests.support.overlay_stage import OverlayStage, Players, RealStage, SimulatedStage
from tests.support.rumours import CODEC, Rumours

EACH = 3
EVERY_MS = 5.0
LOSS = 0.2
RUMOURS = Players(Rumours, CODEC, 6, EVERY_MS)
NAMES = RUMOURS.names

Stage = OverlayStage[Rumours]


async def simulated(loss: float, _: Path) -> Stage:
    return SimulatedStage(RUMOURS, 0.1, 3.0, CastModel(loss=loss, duplicate=loss))


async def over_udp(loss: float, directory: Path) -> Stage:
    return await RealStage(RUMOURS, directory, WireSettings(datagram_loss=loss), "udp").start()


async def over_tcp(loss: float, directory: Path) -> Stage:
    return await RealStage(RUMOURS, directory, WireSettings(datagram_loss=loss), "tcp").start()


Carried = Callable[[float, Path], Awaitable[Stage]]
CARRIERS = pytest.mark.parametrize("carrier", [simulated, over_udp, over_tcp])


def on(carrier: Carried, loss: float, directory: Path, test: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = await carrier(loss, directory)
        try:
            await test(stage)
        finally:
            await stage.stop()

    run_async(main)


@CARRIERS
def test_everybody_delivers_everything_once_in_spite_of_lost_casts(carrier: Carried, tmp_path: Path) -> None:
    """Payloads of many sizes: some fit a datagram, some travel in pieces."""

    async def test(stage: Stage) -> None:
        for number in range(EACH):
            for place, name in enumerate(NAMES):
                stage.publish(name, b"x" * (place * number * 1500))
            await stage.wait(EVERY_MS)
        await stage.all_get(EACH, rounds=2000, every_ms=EVERY_MS)

    on(carrier, LOSS, tmp_path, test)


@CARRIERS
def test_a_cast_names_its_sender_and_where_it_listens(carrier: Carried, tmp_path: Path) -> None:
    async def test(stage: Stage) -> None:
        first = stage.machines()[0]
        while {peer.name for peer in first.heard} != set(NAMES[1:]):
            await stage.wait(EVERY_MS)
        addresses = {machine.me.name: machine.me.address for machine in stage.machines()}
        assert all(peer.kind == "node" and addresses[peer.name] == peer.address for peer in first.heard)

    on(carrier, 0.0, tmp_path, test)


@CARRIERS
def test_what_is_too_long_to_be_cast_is_lost_and_counted(carrier: Carried, tmp_path: Path) -> None:
    async def test(stage: Stage) -> None:
        stage.publish(NAMES[0], b"x" * CAST_BYTES)
        stage.publish(NAMES[0], b"x" * (CAST_BYTES - 200))
        while not (all(stage.got[name] for name in NAMES) and stage.counters(NAMES[0])["casts_too_long"]):
            await stage.wait(EVERY_MS)
        assert {name: stage.got[name] for name in NAMES[1:]} == {name: ["n00#2"] for name in NAMES[1:]}

    on(carrier, 0.0, tmp_path, test)
