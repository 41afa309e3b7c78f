"""A replicated set on three real processes: on flooding its replicas end up different, on preventive broadcast equal.

    python examples/replicated_set.py

Ann and bob are connected by a slow line. Ann inserts `draft`; while that is under way, dan joins through bob and gets
a line to ann as well. Then ann removes `draft`. On a flood the removal takes the new, fast line and overtakes the
insertion: bob and dan keep what ann has removed. The preventive broadcast uses the new line only once everything
before is there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.settings import WireSettings
from ordercast.protocols import lookup

SLOW_MS = 2000.0
PATIENCE_S = 30.0
NAMES = ("ann", "bob", "dan")


# One process: a replica of the set above an overlay node. It obeys lines on standard input and answers each with one.


class Replica:
    """Applies insertions and removals in the order in which the broadcast delivers them."""

    def __init__(self) -> None:
        self.items: set[str] = set()
        self.history: list[str] = []

    def apply(self, message: Message) -> None:
        operation, _, item = message.payload.decode().partition(" ")
        (self.items.add if operation == "insert" else self.items.discard)(item)
        self.history.append(message.payload.decode())

    def state(self) -> bytes:
        return " ".join(sorted(self.items)).encode()

    def install(self, state: bytes) -> None:
        self.items = set(state.decode().split())


async def serve(protocol: str, name: str) -> None:
    """Run one replica until standard input ends; the first line says through whom it joins, if through anybody."""
    info, replica = lookup(protocol), Replica()
    assert info.build_overlay is not None
    build, options = info.build_overlay, info.parse_options({})
    contacts = tuple((await read_line()).split())

    def machine(wires: OverlayWires, place: OverlayPlace) -> OverlayMachine:
        return build(wires, place, options)

    host = OverlayHost(
        NodeId(name), machine, contacts[1:], info.codec(), info.guarantee,
        WireSettings(delay_ms={"ann bob": SLOW_MS}, silence_ms=20_000.0),
        credentials=NodePlace("replicated-set", b"a secret").credentials(), genesis=not contacts[1:],
    )  # fmt: skip
    host.take_snapshot, host.install_snapshot = replica.state, replica.install
    host.delivery_watchers.append(replica.apply)
    await host.start("127.0.0.1:0")
    print(host.me.address, flush=True)
    while line := await read_line():
        match line:
            case "joined":
                print(host.counters["noted_join"], flush=True)
            case "lines":
                print(sum(wire.peer is not None for wire in host.connections.values()), flush=True)
            case "seen":
                print(len(replica.history), flush=True)
            case "show":
                print(f"{', '.join(replica.history)} -> {{{', '.join(sorted(replica.items))}}}", flush=True)
            case operation:
                await host.publish("set", operation.encode())
                print("done", flush=True)
    await host.stop()


async def read_line() -> str:
    return (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()


# The demonstration: three such processes, and what happens to them.


class Process:
    """One replica in a process of its own."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self.address = ""

    async def ask(self, line: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{line}\n".encode())
        return (await asyncio.wait_for(self._child.stdout.readline(), PATIENCE_S)).decode().strip()

    async def start(self, *contacts: Process) -> None:
        self.address = await self.ask(" ".join(["start", *(contact.address for contact in contacts)]))

    async def until(self, question: str, enough: int) -> None:
        """Ask again and again, until the answer is so large a number."""
        async with asyncio.timeout(PATIENCE_S):
            while int(await self.ask(question)) < enough:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def process(protocol: str, name: str) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "serve", protocol, name,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Process(child)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()


async def demonstrate(protocol: str) -> list[str]:
    """What the three replicas have seen and have in the end."""
    async with AsyncExitStack() as stack:
        ann, bob, dan = [await stack.enter_async_context(process(protocol, name)) for name in NAMES]
        await ann.start()
        await bob.start(ann)
        await bob.until("joined", 1)
        await ann.ask("insert draft")  # It will be long on its way to bob.
        await dan.start(bob, ann)
        await dan.until("joined", 1)
        await ann.until("lines", 2)
        await ann.ask("remove draft")
        for one in (ann, bob, dan):
            await one.until("seen", 2)
        return [await one.ask("show") for one in (ann, bob, dan)]


async def main() -> None:
    for protocol in ("flood-overlay", "preventive"):
        seen = await demonstrate(protocol)
        print(f"{protocol}:")
        for name, line in zip(NAMES, seen, strict=True):
            print(f"  {name} saw {line}")
        equal = len({line.partition(" -> ")[2] for line in seen}) == 1
        print(f"  {'the replicas are equal' if equal else 'THE REPLICAS DIFFER'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(*sys.argv[2:]))
    else:
        asyncio.run(main())
