"""A group under virtual time: members, updates by chance, crashes, and everything that is measured on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from ordercast.core.chance import mix, salt, shuffled, unit
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import BuildOverlay, OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.experiments.cluster.oracle import Oracle
from ordercast.experiments.cluster.setting import CLUSTER, PAYLOAD_BYTES, ClusterSetting
from ordercast.protocols import OVERLAYS
from ordercast.protocols.cluster.events import epoch_of, seq_of, value_of
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.packets import Recover, Recovered, Update
from ordercast.protocols.gossip.machine import GossipMachine
from ordercast.protocols.gossip.packets import Gossip
from ordercast.scenario.tables import Latency, Uniform
from ordercast.sim.clock import ns
from ordercast.sim.connections import Processes

_SLOW_ROUNDS = 5
_encode = msgspec.msgpack.Encoder().encode
Attempt = tuple[str, int, int]
"""One update that one member asked others for: member, entry, value."""


class Group:
    """Builds the world of a setting; `live` lets it happen once."""

    def __init__(self, setting: ClusterSetting, build: BuildOverlay | None = None) -> None:
        self.setting = setting
        self.names = tuple(f"m{i:04d}" for i in range(setting.members))
        self.updaters = self.names if setting.hand_over else self.names[: setting.updaters]
        self.oracle = Oracle(self.names, self.updaters)
        self.world = Processes(setting.seed, self._latency, casts=setting.casts())
        self.world.deliveries = self._delivers
        self.world.tap = self._sent
        self.codec = OVERLAYS["cluster" if setting.ordered else "gossip"].codec()
        self.world.casts.weigh = self._size
        self.bytes_sent: Counter[str] = Counter()
        self.recovery_bytes: Counter[str] = Counter()
        self.message_bytes: list[int] = []
        """Of every gossip message in the second half of the time in which updates are made: its length, once for all
        targets. Before that some have made none yet, and the zeros in vectors are short."""
        self._warm_ns = round(setting.rounds / 2 * setting.round_ms * 1e6)
        self._made_ns = round(setting.rounds * setting.round_ms * 1e6)
        self.digest_bytes = 0
        self.attempts: dict[Attempt, int] = {}
        """When each was asked for first."""
        self.heard: dict[str, dict[str, int]] = defaultdict(dict)
        """By member: when it heard of each update by gossip for the first time."""
        self.crashed: dict[str, int] = {}
        """When each of them did."""
        self.stamps: dict[tuple[int, int], str] = {}
        """The update of each entry and value."""
        self.two_makers = 0
        self._measured: tuple[Packet | None, int] = (None, 0)
        self._range = self._range_ns()
        self._numbers: Counter[str] = Counter()
        self._make = build or self._machine
        for name in self.names:
            # A life of the simulator is also where an overlay machine delivers.
            self.world.add(name, "node", self._build, address=name)  # type: ignore[arg-type]

    def _build(self, wires: OverlayWires, peer: Peer) -> OverlayMachine:
        return self._make(wires, OverlayPlace(peer, self.names, True, salt(self.setting.seed, "member", peer.name)))

    def _machine(self, wires: OverlayWires, place: OverlayPlace) -> OverlayMachine:
        if self.setting.ordered:
            return ClusterMachine(wires, place, self.setting.cluster_options(self.names))
        return GossipMachine(wires, place, self.setting.gossip_options())

    def machine(self, name: str) -> Any:
        return self.world.machine(name)

    # What happens

    def live(self) -> None:
        """Everybody begins; updates are made; then all that is under way ends."""
        self.live_until(self.setting.last_round)

    def live_until(self, last_round: int) -> None:
        setting = self.setting
        self.world.receipts = self._received
        for name in self.names:
            self.world.start(name)
        self._plan_crashes()
        for number in range(last_round):
            if number < setting.rounds and self._is_busy(number):
                self.plan_updates(number)
            self.world.clock.run_until(round((number + 1) * setting.round_ms * 1e6))

    def _is_busy(self, number: int) -> bool:
        burst = self.setting.burst
        return not burst or number % (burst + self.setting.ttl + 12) < burst

    def plan_updates(self, number: int) -> None:
        """Every updater draws for itself, and at its own moment within the round: the same whatever the variant."""
        setting, now = self.setting, self.world.clock.now
        for name in self.updaters:
            bits = mix(salt(setting.seed, "updates", name), number)
            if unit(bits) < setting.probability:
                moment = now + int(unit(mix(bits, 1)) * setting.round_ms * 1e6)
                self.world.clock.at(moment, self.update, name)

    def update(self, name: str, _: None = None) -> None:
        """A member makes an update, if it lives."""
        machine = self.machine(name)
        if machine is not None:
            self._numbers[name] += 1
            message = Message(
                Origin(name), self._numbers[name], Topic(CLUSTER), bytes(PAYLOAD_BYTES), Guarantee.EVENTUAL
            )
            self.world.act(name, machine.on_publish, message)

    def _plan_crashes(self) -> None:
        setting = self.setting
        doomed = shuffled(self.names, setting.seed, "crashes")[: round(setting.crashed * setting.members)]
        for i, name in enumerate(doomed):
            moment = ns(setting.round_ms * setting.rounds * (i + 1) / (len(doomed) + 1))
            self.world.clock.at(moment, self._crash, name)

    def _crash(self, name: str, _: None) -> None:
        self.crashed[name] = self.world.clock.now
        self.world.crash(name, "all")

    # What is seen

    def _delivers(self, name: str, message: Message) -> None:
        self.oracle.delivers(name, message.publisher, message.id, self.world.clock.now)

    def _sent(self, source: str, _target: str, packet: Packet) -> None:
        if isinstance(packet, Update | Gossip):
            first = self._measured[0] is not packet
            size = self._size(packet)
            self.bytes_sent[source] += size
            if first:
                self._look(packet, size)
        elif isinstance(packet, Recover):
            self._asked(source, packet)
        elif isinstance(packet, Recovered):
            self.recovery_bytes[source] += self.codec.size(packet)

    def _look(self, packet: Update | Gossip, size: int) -> None:
        if self._warm_ns <= self.world.clock.now < self._made_ns:
            self.message_bytes.append(size)
            if isinstance(packet, Update):
                self.digest_bytes += len(_encode(packet.digest))
        if isinstance(packet, Update):
            for event in packet.events:
                known = self.stamps.setdefault((event.entry, event.value), event.message.id)
                self.two_makers += known != event.message.id

    def _asked(self, member: str, packet: Recover) -> None:
        now = self.world.clock.now
        for entry, low, high in packet.ranges:
            first = seq_of(low) if epoch_of(low) == epoch_of(high) else 0
            for seq in range(first + 1, seq_of(high) + 1):
                self.attempts.setdefault((member, entry, value_of(epoch_of(high), seq)), now)

    def _size(self, packet: Packet) -> int:
        known, size = self._measured
        if known is not packet:
            size = self.codec.size(packet)
            self._measured = packet, size
        return size

    def _received(self, member: str, _source: str, packet: Packet) -> None:
        heard, now = self.heard[member], self.world.clock.now
        if isinstance(packet, Update):
            for event in packet.events:
                heard.setdefault(event.message.id, now)
        elif isinstance(packet, Gossip):
            for message in packet.messages:
                heard.setdefault(message.id, now)

    def update_of(self, attempt: Attempt) -> str | None:
        """The update that was asked for, if it was ever gossiped."""
        return self.stamps.get((attempt[1], attempt[2]))

    def dead_at(self, time: int) -> int:
        return sum(crashed <= time for crashed in self.crashed.values())

    # Latencies

    def _range_ns(self) -> Uniform:
        setting = self.setting
        if setting.base_ms:
            return Uniform(low_ms=setting.base_ms, high_ms=2 * setting.base_ms)
        longest = setting.latency * setting.round_ms
        return Uniform(low_ms=longest / 3, high_ms=longest)

    def _latency(self, source: str, target: str) -> Latency:
        if self.setting.slow and unit(salt(self.setting.seed, "slow", source, target)) < self.setting.slow:
            usual, extra = self._range, _SLOW_ROUNDS * self.setting.round_ms
            return Uniform(low_ms=usual.low_ms + extra, high_ms=usual.high_ms + extra)
        return self._range
