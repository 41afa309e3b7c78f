"""A scenario's loads in wall time, as far as one node publishes for them.

A node sees only itself: a limit over all publishers is split evenly among them, a closed load waits for the publisher's
own delivery or for the protocol's word, and how deep an answer lies in a chain of answers travels in its first byte.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ordercast.core.chance import exponential, mix, unit
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES, Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.net.confirmations import Completed
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.settings import ns
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.checking import check_load, check_step
from ordercast.scenario.choosing import Chooser, DrawnLoad, Population, publishers_of
from ordercast.scenario.model import BurstLoad, ClosedLoad, OpenLoad, ReplyLoad, Scenario, Schedule, Step

_GAP, _REPLY = 4, 5
_NO_LIMIT = 1 << 62
_IN_A_ROW = 64
"""Publications that are due together leave in one turn of the loop, up to so many."""
_NO_TOPIC = Topic("")


class Publishing(Protocol):
    """Port to a node that a workload publishes at."""

    node: NodeId
    protocol: ProtocolInfo
    published: int
    delivery_watchers: list[Any]

    async def wait_for_room(self) -> None: ...

    def submit(
        self, topic: str, payload: bytes, *, guarantee: Guarantee | None = None, keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (), told: Callable[[Message], None] | None = None,
    ) -> Completed: ...  # fmt: skip

    def subscribe(self, topic: str) -> None: ...

    def unsubscribe(self, topic: str) -> None: ...

    def join(self) -> None: ...

    def leave(self) -> None: ...


class Workload:
    """All loads of the scenario at one node."""

    def __init__(
        self, host: Publishing, scenario: Scenario, people: Population, seed: int, *, resumes: bool = False
    ) -> None:
        """One that `resumes` leaves out what was due before: the node was there, or down."""
        self._host = host
        self._resumes = resumes
        self._since_ns = 0
        self._scenario = scenario
        self._people = people
        self._tasks: set[asyncio.Task[None]] = set()
        self._planned: set[asyncio.TimerHandle] = set()
        self._own: dict[str, asyncio.Future[None]] = {}
        self._after: dict[str, list[Step]] = {}
        self._go_ns = 0
        self._drivers: list[Callable[[], Coroutine[None, None, None]]] = []
        self._replies: list[tuple[ReplyLoad, _Share]] = []
        leaves = [ns(f.at_ms) - 1 for f in scenario.fault if isinstance(f, Leave) and f.node == host.node]
        self._leaves_ns = min(leaves, default=ns(scenario.duration_ms))
        """When the node begins to leave for good: nothing is drawn for it any more."""
        host.delivery_watchers.append(self._delivered)
        for change in scenario.fault:
            if isinstance(change, Join | Leave) and change.node == host.node:
                self._drivers.append(partial(self._move, change))
        for i, load in enumerate(scenario.workload):
            if isinstance(load, Schedule):
                self._plan_script(load)
            else:
                self._plan_load(load, f"workload[{i}]", seed)

    def start(self, go_ns: int) -> None:
        """Begin; times of the scenario count from `go_ns` on the monotonic clock."""
        self._go_ns = go_ns
        self._since_ns = self._now() if self._resumes else 0
        for driver in self._drivers:
            self._spawn(driver())

    @property
    def pending(self) -> int:
        """Publishers that have not finished, and answers that are not given yet."""
        return len(self._tasks) + len(self._planned)

    async def close(self) -> None:
        for timer in self._planned:
            timer.cancel()
        self._planned.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_surface)

    # Planning

    def _plan_load(self, load: DrawnLoad, where: str, seed: int) -> None:
        share = _share(load, where, self._host, self._people, seed, self._scenario.duration_ms)
        if share is None:
            return
        share.stop_ns = min(share.stop_ns, self._leaves_ns)
        match load:
            case OpenLoad():
                self._drivers.append(lambda: self._open(load, share))
            case ClosedLoad():
                self._drivers.extend([lambda: self._closed(load, share)] * load.outstanding)
            case BurstLoad():
                self._drivers.append(lambda: self._burst(load, share))
            case ReplyLoad():
                self._replies.append((load, share))

    def _plan_script(self, load: Schedule) -> None:
        mine = [step for step in load.steps if step.node == self._host.node]
        timed = sorted((step for step in mine if step.at_ms is not None), key=lambda step: step.at_ms or 0.0)
        for step in mine:
            if step.after is not None:
                self._after.setdefault(step.after, []).append(step)
        if timed:
            self._drivers.append(lambda: self._script(timed))

    # Loads

    async def _open(self, load: OpenLoad, share: _Share) -> None:
        mean = 1e9 * share.publishers / load.rate_per_s
        regular = load.arrival == "regular"

        def gap(number: int) -> float:
            return mean if regular else exponential(mix(share.chooser.salted, number, _GAP), mean)

        # Regular publishers take turns; others begin after a random gap of their own.
        due = share.start_ns + (mean * share.rank / share.publishers if regular else gap(0))
        number = 0
        while share.left > 0 and due <= share.stop_ns:
            number += 1
            if due >= self._since_ns:
                await self._until(due, number)
                if await self._publish(share) is None:
                    return
            due += gap(number)

    async def _closed(self, load: ClosedLoad, share: _Share) -> None:
        """The first message of one of the load's slots; each further one follows from the end of the one before."""
        await self._until(share.start_ns, 0)
        await self._next(load, share)

    async def _next(self, load: ClosedLoad, share: _Share) -> None:
        own: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def watch(message: Message) -> None:
            if load.until == "self":
                self._own[message.id] = own

        answer = await self._publish(share, watch)
        if answer is not None:
            done: asyncio.Future[Any] = own if load.until == "self" else answer
            done.add_done_callback(lambda ended: self._again(load, share, ended))

    def _again(self, load: ClosedLoad, share: _Share, ended: asyncio.Future[Any]) -> None:
        if ended.cancelled() or ended.exception() is not None or share.left <= 0 or self._now() > share.stop_ns:
            return

        def go_on() -> None:
            self._planned.discard(timer)
            self._spawn(self._next(load, share))

        timer = asyncio.get_running_loop().call_later(load.think_ms / 1000, go_on)
        self._planned.add(timer)

    async def _burst(self, load: BurstLoad, share: _Share) -> None:
        due = float(share.start_ns)
        while share.left > 0 and due <= share.stop_ns:
            if due >= self._since_ns:
                await self._until(due, 0)
                for _ in range(load.size):
                    if await self._publish(share) is None:
                        return
            due += ns(load.every_ms)

    async def _script(self, steps: list[Step]) -> None:
        for step in steps:
            due = ns(step.at_ms or 0.0)
            if due >= self._since_ns:
                await self._until(due, 0)
                self._do(step)

    # Deliveries

    def _delivered(self, _host: Publishing, message: Message) -> None:
        if self._own and message.publisher == self._host.node:
            own = self._own.pop(message.id, None)
            if own is not None and not own.done():
                own.set_result(None)
        if self._after:
            for step in self._after.pop(message.id, ()):
                self._do(step)
        if self._replies and message.publisher != self._host.node:
            for load, share in self._replies:
                self._consider_reply(load, share, message)

    def _consider_reply(self, load: ReplyLoad, share: _Share, message: Message) -> None:
        depth = (message.payload[0] if message.payload else 0) + 1
        drawn = unit(mix(share.chooser.salted, zlib.crc32(message.id.encode()), _REPLY))
        if depth > load.depth or drawn >= load.probability or self._now() > share.stop_ns:
            return
        if not load.delay_ms:
            self._submit(share, depth)
            return

        def answer() -> None:
            self._planned.discard(timer)
            if self._now() <= share.stop_ns:
                self._submit(share, depth)

        timer = asyncio.get_running_loop().call_later(load.delay_ms / 1000, answer)
        self._planned.add(timer)

    # Publishing

    async def _publish(self, share: _Share, told: Callable[[Message], None] | None = None) -> Completed | None:
        """One message when there is room for it; None if the load is over by then."""
        await self._host.wait_for_room()
        if share.left <= 0 or self._now() > share.stop_ns:
            return None
        return self._submit(share, 0, told)

    def _submit(self, share: _Share, depth: int, told: Callable[[Message], None] | None = None) -> Completed:
        share.left -= 1
        share.count += 1
        choice = share.chooser.choose(share.count)
        payload = bytes([depth]) + share.payload[1:] if depth else share.payload
        answer = self._host.submit(
            choice.topic, payload, guarantee=choice.guarantee, keys=choice.keys, dst=choice.dst, told=told
        )
        answer.add_done_callback(_hear_refusal)
        return answer

    def _do(self, step: Step) -> None:
        topic = Topic(step.topic) if step.topic is not None else next(iter(self._people.groups), _NO_TOPIC)
        match step.do:
            case "publish":
                guarantee = GUARANTEES[step.guarantee] if step.guarantee else None
                dst = tuple(node for node in self._people.nodes if node in step.dst)
                self._host.submit(
                    _NO_TOPIC if dst else topic, bytes(step.payload_bytes), guarantee=guarantee, keys=tuple(step.keys),
                    dst=dst,
                ).add_done_callback(_hear_refusal)  # fmt: skip
            case "subscribe":
                self._host.subscribe(topic)
            case "unsubscribe":
                self._host.unsubscribe(topic)

    async def _move(self, change: Join | Leave) -> None:
        """Enter the overlay, or leave it, when it is time."""
        due = ns(change.at_ms)
        if due >= self._since_ns:
            await self._until(due, 0)
            if isinstance(change, Join):
                self._host.join()
            else:
                self._host.leave()

    async def _until(self, due_ns: float, number: int) -> None:
        wait = due_ns - self._now()
        if wait > 0:
            await asyncio.sleep(wait / 1e9)
        elif number % _IN_A_ROW == 0:
            await asyncio.sleep(0)

    def _now(self) -> int:
        return time.monotonic_ns() - self._go_ns


class _Share:
    """One publisher's part of a load."""

    def __init__(
        self, load: DrawnLoad, chooser: Chooser, rank: int, publishers: int, duration_ms: float, published: int
    ) -> None:
        """What the node has `published` in former lives that it remembers counts against every limit."""
        self.chooser = chooser
        self.rank = rank
        self.publishers = publishers
        limit = _NO_LIMIT if load.limit is None else load.limit
        self.left = limit // publishers + (rank < limit % publishers) - published
        self.count = published
        self.payload = bytes(load.payload_bytes)
        self.start_ns = ns(load.start_ms)
        self.stop_ns = ns(duration_ms if load.stop_ms is None else load.stop_ms)


def _share(
    load: DrawnLoad, where: str, host: Publishing, people: Population, seed: int, duration_ms: float
) -> _Share | None:
    """The node's part of the load; None if it has none."""
    default = host.protocol.guarantee
    publishers = publishers_of(load, where, people)
    choosers = {node: Chooser(load, where, node, people, seed, default) for node in publishers}
    able = [node for node in publishers if choosers[node].has_target]
    if host.node not in able:
        return None
    return _Share(load, choosers[host.node], able.index(host.node), len(able), duration_ms, host.published)


def check_workload(scenario: Scenario, people: Population, seed: int, default: Guarantee) -> None:
    """Refuse, by its field, what no set of real processes can do or what makes no sense."""
    most_bytes = NodeSettings().max_payload_bytes

    def known(name: str, where: str) -> None:
        if name not in people.nodes:
            raise UsageError(f"{where}: {unknown_name('node', name, people.nodes)}")

    for i, load in enumerate(scenario.workload):
        where = f"workload[{i}]"
        if isinstance(load, Schedule):
            for j, step in enumerate(load.steps):
                check_step(step, f"{where}.steps[{j}]", people, scenario.duration_ms, most_bytes, known)
        else:
            check_load(load, where, people, scenario.duration_ms, most_bytes)
            _check_load(load, where)
            choosers = [Chooser(load, where, n, people, seed, default) for n in publishers_of(load, where, people)]
            if not any(chooser.has_target for chooser in choosers):
                raise UsageError(f"{where}.topics: no publisher has a topic to publish to")


def _check_load(load: DrawnLoad, where: str) -> None:
    """Refuse loads that only a simulation can run."""
    match load:
        case ClosedLoad(until="everyone"):
            raise UsageError(f"{where}.until: a process sees only its own deliveries; use 'self' or 'completed'")
        case OpenLoad() if load.window:
            raise UsageError(f"{where}.window: over TCP publishers wait for room in bytes; leave it out")
        case ClosedLoad() if load.rate_per_s:
            raise UsageError(f"{where}.rate_per_s: a closed load over TCP has no rate; use an open load")
        case ReplyLoad() if load.payload_bytes < 1 or load.depth > 255:
            raise UsageError(f"{where}: over TCP an answer carries its depth: payload_bytes >= 1 and depth up to 255")


def _surface(task: asyncio.Task[None]) -> None:
    """An error in a publisher is raised where the loop's exception handler sees it."""
    if not task.cancelled() and not isinstance(task.exception(), ConnectionError):
        task.result()


def _hear_refusal(answer: Completed) -> None:
    """Nobody else looks at the answer of an open publication; a refused one is an error of the scenario."""
    if not answer.cancelled() and isinstance(answer.exception(), UsageError):
        answer.result()
