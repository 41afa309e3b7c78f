"""A machine that is repeated from the log of its inputs is the machine that lived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.net.nodes.replay import InputReplay, ToldEvents, told_by
from ordercast.net.nodes.saved_state import pack, restore
from ordercast.net.nodes.state_log import (
    Fired,
    Head,
    JoinedInput,
    LeftInput,
    LifeBegun,
    MachineReplaced,
    PublishedInput,
    ReceivedInput,
    Started,
    StateLog,
    Subscribed,
    Suspected,
    Trusted,
    Unsubscribed,
    belongs_to,
)
from ordercast.net.supervise.process import ProcessLayout
from ordercast.protocols import CATALOGUE, lookup
from ordercast.scenario.brokers import Join
from ordercast.scenario.model import (
    Clique,
    Crash,
    Fault,
    Link,
    OpenLoad,
    ReplyLoad,
    Scenario,
    Schedule,
    Step,
    Suspicion,
    Tree,
)
from ordercast.scenario.tables import Uniform
from ordercast.sim import simulate

SURVIVES_CRASHES = {
    "causal-barriers", "cbcast", "delta-neighbourhood", "fifo", "flood", "locamu", "sequencer", "vector",
}  # fmt: skip
SNAPSHOT_EVERY = 37


class Life:
    """What a node of a simulated run did, beside its log."""

    def __init__(self, directory: Path, place: Place, info: ProtocolInfo, options: Any) -> None:
        self.log = StateLog(directory / place.node, belongs_to(place, info, options))
        self.directory = directory / place.node
        self.build = lambda: info.build(place, options)
        self.codec = info.codec()
        self.notes_membership = info.notes_membership
        self.origin = origin_of(place.node, place.incarnation)
        self.whose = self.log.head.whose
        self.machine = self.build()
        self.delivered: list[str] = []
        self.published = 0
        self.inputs = 0
        self.timers: set[Hashable] = set()
        self.suspected: set[NodeId] = set()

    def again(self) -> InputReplay:
        self.log.close()
        log = StateLog(self.directory, self.whose)
        past = InputReplay(log, self.build, self.codec, self.origin, notes_membership=self.notes_membership)
        log.close()
        return past

    def renew(self) -> None:
        """As a host does where the log has grown large."""
        self.log.flush()
        saved = pack(self.machine)
        head = Head(self.whose, saved=saved, published=self.published, delivered=len(self.delivered))
        self.log.compact(head)
        self.machine = self.build()
        restore(self.machine, saved)


class Logged(Machine):
    """The machine of a simulated node, with a log of all its inputs."""

    constant: ClassVar[tuple[str, ...]] = ("life", "snapshots")

    def __init__(self, life: Life, *, snapshots: bool) -> None:
        self.life = life
        self.snapshots = snapshots
        life.machine = life.build()

    def save(self) -> dict[str, Any]:
        return self.life.machine.save()

    def restore(self, saved: dict[str, Any]) -> None:
        self.life.machine.restore(saved)

    def on_start(self, out: Outbox) -> None:
        self._do(Started(), out, "on_start")

    def on_recover(self, out: Outbox) -> None:
        self._do(LifeBegun(), out, "on_recover")

    def on_publish(self, message: Message, out: Outbox) -> None:
        content = (message.topic, message.payload, message.guarantee, message.keys, message.dst)
        self.life.published += 1
        self._do(PublishedInput(*content), out, "on_publish", message)

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        self.on_receive_many(peer, [packet], out)

    def on_receive_many(self, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> None:
        bodies = tuple(map(self.life.codec.encode, packets))
        decoded = [self.life.codec.decode(body, peer) for body in bodies]  # As from a connection.
        self._do(ReceivedInput(peer, bodies), out, "on_receive_many", peer, decoded)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        self._do(Fired(name), out, "on_timer", name)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self._do(Suspected(peer), out, "on_suspect", peer)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self._do(Trusted(peer), out, "on_trust", peer)

    def on_subscribe(self, topic: Topic, out: Outbox) -> None:
        self._do(Subscribed(topic), out, "on_subscribe", topic)

    def on_unsubscribe(self, topic: Topic, out: Outbox) -> None:
        self._do(Unsubscribed(topic), out, "on_unsubscribe", topic)

    def on_join(self, out: Outbox) -> None:
        self._do(JoinedInput(), out, "on_join")

    def on_leave(self, out: Outbox) -> None:
        self._do(LeftInput(), out, "on_leave")

    def _do(self, happened: Any, out: Outbox, name: str, *args: Any) -> None:
        life = self.life
        life.log.add(happened)
        getattr(life.machine, name)(*args, _Ear(life, out))
        life.inputs += 1
        if isinstance(happened, Suspected | Trusted):
            (life.suspected.add if isinstance(happened, Suspected) else life.suspected.discard)(happened.peer)
        if isinstance(happened, LifeBegun):
            life.suspected.clear()
        if self.snapshots and life.inputs % SNAPSHOT_EVERY == 0:
            self._renew(out)

    def _renew(self, out: Outbox) -> None:
        life = self.life
        for timer in life.timers:
            out.cancel_timer(timer)
        life.renew()
        self._do(MachineReplaced(), out, "on_recover")
        for peer in sorted(life.suspected):
            self._do(Suspected(peer), out, "on_suspect", peer)


class _Ear:
    """Passes everything on and notes what is delivered."""

    def __init__(self, life: Life, out: Outbox) -> None:
        self._life = life
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._life.timers.add(name)
        self._out.set_timer(name, delay_ns, background=background)

    def deliver(self, message: Message) -> None:
        self._life.delivered.append(message.id)
        self._out.deliver(message)


def scenario(name: str) -> Scenario:
    info = CATALOGUE[name]
    atomic = info.guarantee is Guarantee.ATOMIC
    to = 2 if atomic else 0
    faults: list[Fault] = [Crash(node="n1", at_ms=120, recover_ms=200), Suspicion(node="n2", at_ms=60, until_ms=110)]
    if info.admits:
        faults.append(Join(node="n6", at_ms=40))
    everyone_there = [f"n{i}" for i in range(4)]
    changes = [
        Step(do="unsubscribe", node="n2", at_ms=50, topic="t0"),
        Step(do="subscribe", node="n2", at_ms=130, topic="t0"),
    ]
    return Scenario(
        name="replay",
        overlay=Clique(nodes=4) if info.reach is None else Tree(nodes=7),
        protocol=name,
        duration_ms=300,
        link=Link(latency_ms=Uniform(low_ms=1, high_ms=9), fifo=name not in SURVIVES_CRASHES),
        workload=[
            OpenLoad(rate_per_s=300, limit=60, destinations=to, publishers=everyone_there),
            ReplyLoad(probability=0.3, depth=2, limit=30, destinations=to, publishers=everyone_there),
            Schedule(steps=changes if (info.reach is None and not atomic) or info.notes_membership else []),
        ],
        fault=faults if name in SURVIVES_CRASHES else [],
    )


def live(name: str, directory: Path, *, snapshots: bool) -> dict[NodeId, Life]:
    """Simulate, with a log for every node."""
    info = CATALOGUE[name]
    lives: dict[NodeId, Life] = {}

    def build(place: Place, options: Any) -> Machine:
        if place.node not in lives:
            lives[place.node] = Life(directory, place, info, options)
        return Logged(lives[place.node], snapshots=snapshots)

    simulate(scenario(name), msgspec.structs.replace(info, build=build), seed=3)
    return lives


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_machine_repeated_from_its_inputs_is_the_one_that_lived(name: str, tmp_path: Path) -> None:
    for node, life in live(name, tmp_path, snapshots=False).items():
        past = life.again()
        assert past.machine == life.machine, node
        assert [message.id for message in past.unheard(0)] == life.delivered
        assert (past.published, past.delivered) == (life.published, len(life.delivered))
        assert past.revived().save() == life.machine.save()


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_what_was_saved_is_as_good_as_the_inputs_it_replaces(name: str, tmp_path: Path) -> None:
    for node, life in live(name, tmp_path, snapshots=True).items():
        past = life.again()
        assert life.inputs > SNAPSHOT_EVERY
        assert past.machine == life.machine, node
        assert past.delivered == len(life.delivered)
        assert past.published == life.published


def test_another_process_repeats_the_same(tmp_path: Path) -> None:
    """Where a machine looped over a set, the order would depend on the process."""
    lived = {name: live(name, tmp_path / name, snapshots=False) for name in sorted(CATALOGUE)}
    for lives in lived.values():
        for life in lives.values():
            life.log.close()
    code = "import sys; from tests.net.test_replay import repeat_all; repeat_all(sys.argv[1])"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, check=False, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout) == {
            name: {node: life.delivered for node, life in lives.items()} for name, lives in lived.items()
        }


def repeat_all(directory: str) -> None:
    """In a process of its own: print what the logs of all protocols say was delivered."""
    delivered: dict[str, dict[str, list[str]]] = {}
    for name, info in sorted(CATALOGUE.items()):
        layout = ProcessLayout(scenario(name), info, 3)
        delivered[name] = {}
        for node in layout.graph.nodes:
            life = Life(Path(directory) / name, layout.place(node, 0), info, layout.options)
            delivered[name][node] = [message.id for message in life.again().unheard(0)]
    print(json.dumps(delivered))


def test_deliveries_that_the_state_no_longer_has_are_asked_for_in_vain(tmp_path: Path) -> None:
    life = live("fifo", tmp_path, snapshots=True)[NodeId("n0")]
    past = life.again()
    assert past.unheard(len(life.delivered)) == []
    with pytest.raises(UsageError, match="has taken over 0 deliveries, and those before"):
        past.unheard(0)


def test_a_refused_publication_is_refused_again_and_not_counted(tmp_path: Path) -> None:
    info = lookup("locamu")
    place = Place(NodeId("a"), (), (NodeId("a"),), {Topic("t"): (NodeId("a"),)})

    class Picky(Machine):
        def on_publish(self, message: Message, out: Outbox) -> None:
            if not message.payload:
                raise UsageError("nothing to say")
            out.deliver(message)

    log = StateLog(tmp_path, belongs_to(place, info, info.parse_options({})))
    for payload in (b"one", b"", b"two"):
        log.add(PublishedInput(Topic("t"), payload, Guarantee.CAUSAL, (), ()))
    log.flush()
    log.close()
    log = StateLog(tmp_path, log.head.whose)
    past = InputReplay(log, Picky, info.codec(), origin_of(NodeId("a"), 0), notes_membership=False)
    log.close()
    assert past.published == 2
    assert [(event.kind, event.message and event.message.id) for event in past.untold(ToldEvents())] == [
        ("publish", "a#1"), ("deliver", "a#1"), ("publish", "a#2"), ("deliver", "a#2"),
    ]  # fmt: skip
    assert [event.kind for event in past.untold(ToldEvents(events=3, last=("publish", "a#2")))] == ["deliver"]
    for wrong in (ToldEvents(events=3, last=("deliver", "a#1")), ToldEvents(events=5)):
        with pytest.raises(InvariantError, match="the log does not have it there"):
            past.untold(wrong)


def test_a_refused_subscription_is_refused_again_and_not_told(tmp_path: Path) -> None:
    info = lookup("cbcast")
    layout = ProcessLayout(scenario("cbcast"), info, 0)
    place = layout.place(NodeId("n0"), 0)
    log = StateLog(tmp_path, belongs_to(place, info, layout.options))
    for happened in (Started(), Subscribed(Topic("t0")), Unsubscribed(Topic("t0"))):
        log.add(happened)
    log.flush()
    log.close()
    log = StateLog(tmp_path, log.head.whose)
    build = lambda: info.build(place, layout.options)  # noqa: E731
    past = InputReplay(log, build, info.codec(), origin_of(NodeId("n0"), 0), notes_membership=False)
    log.close()
    assert past.told == 0


def test_journals_tell_what_the_world_has_seen(tmp_path: Path) -> None:
    rows = ["recover", "publish", "deliver", "send", "suspect", "join", "deliver"]
    lines = "".join(f'{{"kind":"{kind}","time_ns":1}}\n' for kind in rows)
    (tmp_path / "a.0.jsonl").write_text(lines)
    (tmp_path / "a.1.jsonl").write_text(lines + '{"kind":"deliver","tim')
    assert told_by(sorted(tmp_path.iterdir())) == ToldEvents(events=8, deliveries=4, last=("deliver", None))
