"""A board that four players share, as replicated objects on five real processes; one of them is killed.

Three may move at a time. Bob, who may, is killed; when his lease is over, dan moves in his place. The watcher shows
the board as it changes.

Run: python examples/shared_board.py [--seconds 8] [--carrier udp|tcp]
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import socket
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ordercast import objects
from ordercast.protocols.cluster.options import ClusterOptions

WIDTH, HEIGHT = 24, 8
PLAYERS = ("ann", "bob", "cho", "dan")
OPTIONS = ClusterOptions(round_ms=40.0, entries=3, lease_ms=1000.0, claim_ms=250.0, catch_up_ms=500.0)


async def start(name: str, arguments: argparse.Namespace, data: Path | None = None) -> objects.Node:
    """The first three players manage the right to move, too."""
    address = arguments.addresses[PLAYERS.index(name)] if name in PLAYERS else "127.0.0.1:0"
    return await objects.start(
        name, listen=address, contacts=[other for other in arguments.addresses if other != address],
        managers=arguments.addresses[:3], token=arguments.token, carrier=arguments.carrier, data=data, options=OPTIONS,
    )  # fmt: skip


async def play(arguments: argparse.Namespace) -> None:
    """A player's process: wait for the right to move, then move about until killed."""
    name = arguments.player
    async with await start(name, arguments, Path(arguments.data) / name) as node:
        board = await node.join("board")
        await board.become_coordinator(timeout_s=60)
        place, moves = board.register(f"token {name}"), board.counter("moves")
        x, y = secrets.randbelow(WIDTH), secrets.randbelow(HEIGHT)
        while True:
            x = min(WIDTH - 1, max(0, x + secrets.choice((-1, 0, 1))))
            y = min(HEIGHT - 1, max(0, y + secrets.choice((-1, 0, 1))))
            await place.set([x, y])
            await moves.add()
            await asyncio.sleep(0.05)


def picture(board: objects.Cluster) -> str:
    """The board as text, with the first letter of every player."""
    cells = [["·"] * WIDTH for _ in range(HEIGHT)]
    for name in PLAYERS:
        place = board.register(f"token {name}").value
        if place is not None:
            cells[place[1]][place[0]] = name[0]
    lines = ["".join(row) for row in cells]
    return "\n".join([*lines, f"{board.counter('moves').value} moves, {board.lost_ranges} gaps skipped"])


class Players:
    """The players' processes."""

    def __init__(self, arguments: argparse.Namespace, data: str) -> None:
        self._arguments = arguments
        self._data = data
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        arguments = self._arguments
        self._processes[name] = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--player", name, "--addresses", *arguments.addresses,
            "--token", arguments.token, "--carrier", arguments.carrier, "--data", self._data,
        )  # fmt: skip

    async def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def end(self) -> None:
        for name in list(self._processes):
            await self.kill(name)


async def watch(arguments: argparse.Namespace, players: Players) -> None:
    """The observer shows the board. When three are moving it lets dan in, who has to wait, and kills bob."""
    async with await start("watcher", arguments) as node:
        board = await node.join("board", timeout_s=30)
        moving: list[str] = []
        board.on_update(lambda update: moving.append(update.maker) if update.maker not in moving else None)
        console = Console()
        with Live(console=console, auto_refresh=False, transient=True) as live:
            if console.is_terminal:
                board.on_update(lambda _: live.update(picture(board), refresh=True))
            await board.wait_until(lambda: len(moving) == 3, timeout_s=60)
            await players.start("dan")
            await asyncio.sleep(arguments.seconds / 2)
            first = sorted(moving)
            await players.kill("bob")
            before = board.counter("moves").value
            await board.wait_until(lambda: len(moving) == 4, timeout_s=60)
            await asyncio.sleep(arguments.seconds / 2)
        print(picture(board))
        print(f"moved at first: {' '.join(first)}")
        went_on = board.counter("moves").value > before
        print(f"bob was killed; {moving[-1]} moved in his place; the others went on: {went_on}")


async def supervise(arguments: argparse.Namespace) -> None:
    """Start the players as processes of their own, and watch."""
    arguments.addresses = [f"127.0.0.1:{port}" for port in free_ports(len(PLAYERS))]
    arguments.token = secrets.token_hex()
    with tempfile.TemporaryDirectory() as data:
        players = Players(arguments, data)
        try:
            for name in PLAYERS[:3]:
                await players.start(name)
            await watch(arguments, players)
        finally:
            await players.end()


def free_ports(count: int) -> list[int]:
    """Ports that are free for connections; a game on one machine may hope that they are for datagrams, too."""
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--carrier", choices=("udp", "tcp"), default="udp")
    parser.add_argument("--player", choices=PLAYERS, help=argparse.SUPPRESS)
    parser.add_argument("--addresses", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--token", default="", help=argparse.SUPPRESS)
    parser.add_argument("--data", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    asyncio.run(play(arguments) if arguments.player else supervise(arguments))


if __name__ == "__main__":
    main()
