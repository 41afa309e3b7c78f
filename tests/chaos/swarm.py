"""Random faults on real processes: `python -m tests.chaos.swarm --seeds 20 --first 0 [--minutes 30]`.

A seed decides the tree, who reads and writes what, and the faults: brokers and clients that are killed and come back,
stand still, lose their connections, or are cut off without being told. What happens between the faults is up to the
machine, so a seed that failed once may pass the next time; its run directory, with the journals and the brokers' logs,
is kept and named.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import msgspec
import uvloop

from ordercast.net.brokers.cluster import BrokerCluster
from ordercast.pubsub.settings import BrokerSettings
from tests.support.chaos_client import Orders
from tests.support.chaos_run import (
    SETTINGS,
    ClientProcess,
    behind_proxies,
    come_to_rest,
    draws,
    judge_living,
    lost_although_safe,
)
from tests.support.proxy import Proxy
from tests.support.pubsub_lab import complaints

TOPICS = ["t.a", "t.b"]
_PATIENCE_S = 90.0


class Chaos:
    """One run."""

    def __init__(self, seed: int, directory: Path, *, seconds: float = 6.0) -> None:
        self.seed = seed
        self.directory = directory
        self.trace = directory / "run"
        self.seconds = seconds
        chance = draws(seed, "plan")
        self.brokers = chance.choice((3, 3, 4, 5))
        self.durable = chance.random() < 0.5
        """Brokers have data directories: any of them may be killed at any time."""
        self.spare = (self.brokers - 1) // 2
        """Brokers that may be down at one time if they lose their state (f)."""
        self.story: list[str] = []
        self.down: set[int] = set()
        self.clients = [self._client(i, chance) for i in range(4)]
        self.clients.append(self._client(4, chance, late=True))
        self.gone: set[str] = set()
        """Clients that were killed for good."""
        self.began = 0.0
        self.cluster: BrokerCluster
        self.proxies: list[Proxy]

    def _client(self, i: int, chance: Random, *, late: bool = False) -> ClientProcess:
        name = f"late{i}" if late else f"c{i}"
        reads: list[str] = chance.choice((TOPICS, ["t.>"], TOPICS[:1], [])) if i > 1 else TOPICS
        durable = chance.random() < 0.5
        return ClientProcess(
            Orders(
                name=name, addresses=[], reads=reads, writes=TOPICS, trace=str(self.trace),
                safe=str(self.directory / f"{name}.safe"), data=str(self.directory / name) if durable else None,
                count=round(self.seconds * 10), pause_s=0.1, seed=str(self.seed),
            )
        )  # fmt: skip

    async def run(self) -> list[str]:
        """Everything that is wrong with it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {"data": str(self.directory / "data"), "fsync": "never"} if self.durable else {}
        self.cluster, self.proxies = await behind_proxies(
            self.directory, self.trace, self.brokers, settings=_settings(self.spare + 1), **settings
        )
        addresses = [entry.address for entry in self.cluster.config.broker]
        for i, client in enumerate(self.clients):
            first = i % self.brokers
            client.orders = _at(client.orders, addresses[first:] + addresses[:first])
        try:
            await asyncio.to_thread(self.cluster.up, 60)
            await self._tree()
            *early, late = self.clients
            await asyncio.gather(*(client.start() for client in early))
            await asyncio.gather(*(client.until("ready") for client in early))
            self.began = time.monotonic()
            await asyncio.gather(self._faults(), self._join(late))
            await self._heal()
            living = [client for client in self.clients if client.orders.name not in self.gone]
            await come_to_rest(living, _PATIENCE_S)
            for client in self.clients:
                await client.finish()
        finally:
            for client in self.clients:
                await client.kill()
            await asyncio.to_thread(self.cluster.down)
            for proxy in self.proxies:
                await proxy.close()
        verdict, rows = judge_living(self.trace)
        readers = [c.orders.name for c in self.clients[:2] if c.orders.name not in self.gone and c.orders.data]
        return [*complaints(verdict), *lost_although_safe(self.directory, rows, readers), *self._failures()]

    def _failures(self) -> list[str]:
        """A broker that ended by itself found a bug."""
        found = []
        for log in sorted(self.cluster.run_directory.glob("*.log")):
            lines = log.read_text().splitlines()
            found += [f"{log.name}: {line}" for line in lines if "Traceback" in line or "InvariantError" in line]
        return found

    async def _join(self, late: ClientProcess) -> None:
        await asyncio.sleep(draws(self.seed, "late").random() * self.seconds)
        self._note(f"{late.orders.name} joins")
        await late.start()

    # Faults

    async def _faults(self) -> None:
        chance = draws(self.seed, "faults")
        kinds = [
            self._kill, self._kill, self._kill_root, self._pause, self._cut, self._freeze, self._stop_client,
            self._kill_client, self._restart, self._slow, self._stop,
        ]  # fmt: skip
        lasting = []
        while time.monotonic() - self.began < self.seconds:
            await asyncio.sleep(chance.random() * 0.8)
            lasting.append(asyncio.create_task(chance.choice(kinds)(Random(chance.random()))))
            if chance.random() < 0.6:
                await asyncio.gather(*lasting)
        await asyncio.gather(*lasting)

    def _note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:6.2f} s: {what}")

    def _may_die(self) -> list[int]:
        up = [i for i in range(self.brokers) if i not in self.down]
        return up if self.durable or len(self.down) < self.spare else []

    async def _kill(self, chance: Random, victim: int | None = None) -> None:
        possible = self._may_die()
        if not possible:
            return
        chosen = chance.choice(possible) if victim not in possible else victim
        assert chosen is not None
        self.down.add(chosen)
        self._note(f"b{chosen} is killed")
        await asyncio.to_thread(self.cluster.kill, f"b{chosen}")
        await asyncio.sleep(chance.random() * 2)
        await self._back(chosen)

    async def _stop(self, chance: Random) -> None:
        """In good order."""
        possible = self._may_die()
        if not possible:
            return
        chosen = chance.choice(possible)
        self.down.add(chosen)
        self._note(f"b{chosen} is stopped")
        await asyncio.to_thread(self.cluster.stop, f"b{chosen}")
        await asyncio.sleep(chance.random())
        await self._back(chosen)

    async def _kill_root(self, chance: Random) -> None:
        roots = [
            int(state.id[1:])
            for state in await asyncio.to_thread(self.cluster.status)
            if state.detail is not None and state.detail["overlay"].get("role") == "root"
        ]
        await self._kill(chance, roots[0] if roots else None)

    async def _restart(self, chance: Random) -> None:
        """At once: before everybody has noticed that it was gone."""
        possible = self._may_die()
        if possible:
            chosen = chance.choice(possible)
            self.down.add(chosen)
            self._note(f"b{chosen} is killed and starts again at once")
            await asyncio.to_thread(self.cluster.kill, f"b{chosen}")
            await self._back(chosen)

    async def _back(self, broker: int) -> None:
        await asyncio.to_thread(self.cluster.restart, f"b{broker}", 60)
        self._note(f"b{broker} is back")
        if not self.durable:
            await self._tree()  # Until it has learned everything again, it counts as down.
        self.down.discard(broker)

    async def _pause(self, chance: Random) -> None:
        broker = f"b{chance.randrange(self.brokers)}"
        process = self.cluster.process(broker)
        if process is None:
            return
        self._note(f"{broker} stands still")
        await asyncio.to_thread(self._signal, broker, signal.SIGSTOP)
        await asyncio.sleep(chance.choice((0.1, 0.5, 1.5, 3.0)))
        await asyncio.to_thread(self._signal, broker, signal.SIGCONT)
        self._note(f"{broker} goes on")

    def _signal(self, broker: str, number: signal.Signals) -> None:
        if self.cluster.process(broker) is not None:
            self.cluster.kill(broker, number)

    async def _cut(self, chance: Random) -> None:
        broker = chance.randrange(self.brokers)
        self._note(f"connections to b{broker} are reset")
        self.proxies[broker].cut()

    async def _freeze(self, chance: Random) -> None:
        broker = chance.randrange(self.brokers)
        ways = chance.choice(("there", "back", "both"))
        proxy = self.proxies[broker]
        self._note(f"nothing comes through to b{broker} any more: {ways}")
        for way in (proxy.there, proxy.back) if ways == "both" else (getattr(proxy, ways),):
            way.freeze()
        await asyncio.sleep(chance.choice((0.2, 1.0, 2.0, 3.0)))
        proxy.thaw()
        self._note(f"b{broker} can be reached again")

    async def _slow(self, chance: Random) -> None:
        proxy = chance.choice(self.proxies)
        proxy.there.delay_s, proxy.back.delay_s = chance.random() * 0.1, chance.random() * 0.1

    async def _stop_client(self, chance: Random) -> None:
        client = chance.choice(self.clients)
        self._note(f"{client.orders.name} stands still")
        client.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.choice((0.2, 1.0, 3.0)))
        client.signal(signal.SIGCONT)

    async def _kill_client(self, chance: Random) -> None:
        client = chance.choice(self.clients[1:4])
        if not client.running or "ready" not in client.words:
            return
        self._note(f"{client.orders.name} is killed")
        await client.kill()
        if client.orders.data is None and chance.random() < 0.5:
            self.gone.add(client.orders.name)
            return
        await asyncio.sleep(chance.random() * 1.5)
        self._note(f"{client.orders.name} is back")
        await client.start()

    async def _heal(self) -> None:
        for proxy in self.proxies:
            proxy.thaw()
            proxy.there.delay_s = proxy.back.delay_s = 0.0
        await self._tree()
        self._note("all is well again")

    async def _tree(self) -> None:
        if not await asyncio.to_thread(self.cluster.await_tree, 60):
            states = {state.id: state.problem for state in await asyncio.to_thread(self.cluster.status)}
            raise AssertionError(f"no tree within 60 s: {states}")


def _settings(copies: int) -> BrokerSettings:
    return msgspec.structs.replace(SETTINGS, safe_copies=copies)


def _at(orders: Orders, addresses: list[str]) -> Orders:
    return msgspec.structs.replace(orders, addresses=addresses)


def try_seed(seed: int, directory: Path, *, seconds: float = 6.0) -> tuple[list[str], list[str]]:
    """What is wrong with the run of this seed, and what happened in it."""
    chaos = Chaos(seed, directory, seconds=seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(chaos.run()), chaos.story
        except AssertionError as error:
            return [str(error)], chaos.story


def main() -> int:
    """Run seeds; 0 if none fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no seed after so many minutes")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long the faults of a seed last (default: 6)")
    arguments = parser.parse_args()
    started = time.monotonic()
    failed = runs = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        if arguments.minutes and time.monotonic() - started > arguments.minutes * 60:
            break
        directory = Path(tempfile.mkdtemp(prefix=f"ordercast-chaos-{seed}-"))
        problems, story = try_seed(seed, directory, seconds=arguments.seconds)
        runs += 1
        if problems:
            failed += 1
            print(f"\nseed {seed}: {directory}", *story, *(f"  {problem}" for problem in problems[:6]), sep="\n")
            print(f"again: python -m tests.chaos.swarm --seeds 1 --first {seed}", flush=True)
        else:
            shutil.rmtree(directory)
    print(f"chaos: {runs} runs, {failed} failed, {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
