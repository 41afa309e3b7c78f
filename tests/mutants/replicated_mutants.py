"""Replicated groups with one thing broken at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.daisy_chain.variants import DAISY_CHAIN
from ordercast.protocols.replicated.channels import Endpoint
from ordercast.protocols.replicated.log import Prepare, Promise, ReplicaLog
from ordercast.protocols.replicated.machine import Replicated
from ordercast.protocols.replicated.variants import REPLICATED_DAISY_CHAIN


class CommitsAlone(ReplicaLog):
    """The leader takes its own copy for a majority's."""

    def _commit(self) -> None:
        self.committed = self.length


class ForgetsEntries(ReplicaLog):
    """A new leader goes on with its own log, whatever the others have."""

    def _adopt(self, _promises: list[Promise]) -> None:
        pass

    def _lead(self, out: Outbox) -> None:
        self.promises = {peer: msgspec.structs.replace(it, committed=0) for peer, it in self.promises.items()}
        del self.entries[self.committed - self.base :]
        super()._lead(out)


class HidesAnEmptyLog(ReplicaLog):
    """A new leader takes it that all have seen its log if there is nothing in it, and nobody asks."""

    def _lead(self, out: Outbox) -> None:
        super()._lead(out)
        self.acked = dict.fromkeys(self.others, 0)

    def retry(self, out: Outbox) -> None:
        if self._leader_of(self.view) == self.me:
            super().retry(out)


class PromisesAnew(ReplicaLog):
    """A question that comes late is answered as if its sender did not lead yet."""

    def _on_prepare(self, peer: NodeId, packet: Prepare, out: Outbox) -> None:
        followed = self.last_view
        self.last_view = -1 if packet.view == followed else followed
        super()._on_prepare(peer, packet, out)
        self.last_view = followed


class WaitsForTheDead(Replicated):
    """Whoever holds an input waits until it is taken, even if what comes before it is lost for good."""

    def _can_be_taken(self, _source: NodeId) -> bool:
        return True


class FollowersKeepNothing(Replicated):
    """A follower takes it that the leader has sent everything, so there is nothing left to send when it leads."""

    def _post(self, endpoint: Endpoint, target: Any, packet: Any, out: Outbox) -> None:
        super()._post(endpoint, target, packet, out)
        if not self._speaks_for(endpoint):
            endpoint.outputs.get(target, {}).clear()


def _with_log(name: str, log: type[ReplicaLog]) -> ProtocolInfo:
    class Broken(Replicated):
        log_type = log

    return _mutant(name, Broken)


def _mutant(name: str, machine: type[Replicated]) -> ProtocolInfo:
    def build(place: Place, options: Any) -> Replicated:
        return machine(place, options, DAISY_CHAIN)

    return msgspec.structs.replace(REPLICATED_DAISY_CHAIN, name=name, build=build)


COMMITS_ALONE = _with_log("commits-alone", CommitsAlone)
FORGETS_ENTRIES = _with_log("forgets-entries", ForgetsEntries)
HIDES_AN_EMPTY_LOG = _with_log("hides-an-empty-log", HidesAnEmptyLog)
PROMISES_ANEW = _with_log("promises-anew", PromisesAnew)
WAITS_FOR_THE_DEAD = _mutant("waits-for-the-dead", WaitsForTheDead)
FOLLOWERS_KEEP_NOTHING = _mutant("followers-keep-nothing", FollowersKeepNothing)
