"""Brokers and clients with one corrected rule taken away at a time (the ablations BRK-A1 to BRK-A13, and others)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from ordercast.broker.node import Broker
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.state.member import Coverage
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.topics import Topics
from ordercast.broker.tree.election import Election
from ordercast.broker.tree.lease import RootLease
from ordercast.broker.tree.parenting import Parenting
from ordercast.broker.tree.tree import TreeHalf
from ordercast.client.joining import TopicJoining
from ordercast.client.machine import ClientMachine
from ordercast.client.membership import Membership
from ordercast.client.ports import ClientApp
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.process import Connection, Wires
from ordercast.pubsub.client_packets import Denied, Entries, Live, TopicState
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector
from ordercast.pubsub.tree_packets import ParentRequest, RootElection
from ordercast.sim.pubsub.parts import Parts


def _with_topics(**parts: Any) -> Parts:
    topics = type("Broken", (Topics,), parts)
    return Parts(broker=type("Broken", (Broker,), {"topics_type": topics}))


def _with_tree(**parts: Any) -> Parts:
    tree = type("Broken", (TreeHalf,), parts)
    return Parts(broker=type("Broken", (Broker,), {"tree_type": tree}))


# --- the client ---


class _NoHistory(TopicJoining):
    def history_for(self, membership: Membership, state: TopicState) -> list[Publication]:
        return []


class NoHistory(ClientMachine):
    """BRK-A1: a client does not give the next edge what the last one may have taken with it."""

    def make_joining(self) -> TopicJoining:
        return _NoHistory(self.session, self.stability)


class _NoOutbox(TopicJoining):
    def live(self, packet: Live) -> None:
        membership = self.session.topics[packet.topic]
        kept, membership.outbox = membership.outbox, {}
        super().live(packet)
        membership.outbox = kept


class NoOutbox(ClientMachine):
    """BRK-C6: what was published before the edge died is not published again."""

    def make_joining(self) -> TopicJoining:
        return _NoOutbox(self.session, self.stability)


class PublishesAgain(ClientMachine):
    """BRK-C9: a new session publishes what the last one, which was given up, was never told to be safe."""

    unanswered: ClassVar[WeakKeyDictionary[ClientApp, list[Publication]]] = WeakKeyDictionary()

    def on_start(self) -> None:
        super().on_start()
        for entry in self.unanswered.pop(self.app, []):
            self.publish(entry.topic, entry.payload, entry.keys, entry.guarantee)

    def _denied(self, packet: Denied) -> None:
        super()._denied(packet)
        if self.ended:
            members = self.session.memberships()
            self.unanswered[self.app] = [entry for membership in members for entry in membership.unanswered()]


class _NoRow:
    """Wires of a process that does not say that it was given up."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wires, name)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        if not (kind == "leave" and "lost" in info):
            self._wires.note(kind, info)


def silently_fenced(name: str, session: int, addresses: tuple[str, ...], wires: Wires, *rest: Any) -> ClientMachine:
    """BRK-C9: the trace does not tell that a session was given up, so it reads as if it were still there."""
    return ClientMachine(name, session, addresses, cast("Wires", _NoRow(wires)), *rest)


# --- topics ---


class NoConfirmation(Members):
    """BRK-A2: an edge serves a client without asking the root."""

    def confirmation_needed(self) -> bool:
        return False


class CommitsForThePresent(Ordering):
    """BRK-A3: the root waits for the members that are below it just now."""

    def covers_all(self, node: TopicNode, covered: Coverage) -> bool:
        return {member for member, _ in node.roll().here} <= {member for member, _ in covered}


class LastIds(Channels):
    """BRK-A5: a broker sends what follows the last number of each publisher that the other has."""

    def lacking(self, node: TopicNode, have: Summary, base: Vector) -> list[Publication]:
        last = {origin: max([low, *extras]) for origin, (low, extras) in have.items()}
        return [entry for entry in super().lacking(node, have, base) if entry.number > last.get(entry.origin, 0)]


class ShortBuffer(Channels):
    """BRK-A6: a log keeps its last entries only."""

    longest: ClassVar[int] = 3

    def lacking(self, node: TopicNode, have: Summary, base: Vector) -> list[Publication]:
        kept = {(entry.origin, entry.number) for entry in node.log.entries[-self.longest :]}
        return [entry for entry in super().lacking(node, have, base) if (entry.origin, entry.number) in kept]


class OpensAtOnce(Authority):
    """BRK-A9: a new root grants attaches before it has heard of all members."""

    def may_open(self, node: TopicNode) -> bool:
        return True


class CountsNoFollowers(Authority):
    """BRK-W2: who follows a filter is a member of a topic that begins once its edge has told it, and not before."""

    def followers(self, topic: Topic) -> dict[Origin, int]:
        return {}


class LocksBlockAll(Ordering):
    """BRK-A11: a locked key stops whatever carries it, also what other brokers have admitted."""

    def passing(self, node: TopicNode, entries: tuple[Publication, ...]) -> tuple[Publication, ...]:
        parked: list[Publication] = node.__dict__.setdefault("parked", [])
        moving = []
        for entry in entries:
            if entry.guarantee.label != "total" and self.locked(node, entry):
                parked.append(entry)
            else:
                moving.append(entry)
        return tuple(moving)

    def evaluate(self, node: TopicNode) -> None:
        super().evaluate(node)
        parked: list[Publication] = node.__dict__.setdefault("parked", [])
        free = [entry for entry in parked if not self.locked(node, entry)]
        for entry in free:
            parked.remove(entry)
            if node.have.add(entry.origin, entry.number):
                self.spread(node, Entries(node.topic, (entry,)), None)


class NeverGrounded(Channels):
    """BRK-A12: a broker without a confirmed member goes on with the log that it had."""

    def must_be_grounded(self, *_: Any) -> bool:
        return False


class AnyChannel(Channels):
    """BRK-A13: what is left over from before the channel was reopened is taken for its answer."""

    def current(self, node: TopicNode, open_id: int) -> bool:
        return True


class EarlyBase(StabilityVotes):
    """BRK-ST2: what the members that have reported have counts as stable."""

    def _all_have_voted(self, node: TopicNode, members: Coverage) -> bool:
        return True


class BaseUntold(StabilityVotes):
    """BRK-ST3: a base that grew while a channel was opening stays below."""

    def tell_base(self, node: TopicNode, link: Connection, base: Vector) -> None:
        pass


class NoOrphans(Orphans):
    """R: what a broker without members had is forgotten, although its publishers were told that it is safe."""

    def adopts(self) -> bool:
        return False


# --- the tree ---


class NoRootCheck(Parenting):
    """BRK-A4: a broker takes a child without asking whether it hangs on a root itself."""

    def asked(self, line: Connection, node: NodeId, packet: ParentRequest) -> None:
        super().asked(line, node, packet)
        if self._checks.pop((node, packet.request), None) is not None:
            self._accept(line, node, packet.request)


class Proclaimed(Election):
    """BRK-A10: whoever claims to be root is root."""

    def _check(self) -> None:
        self.claim.wait_no_longer()
        super()._check()


class ManyPromises(Election):
    """BRK-O13.3 with partitions: a second claimant of the same term gets the word too."""

    def _may_promise(self, node: NodeId, packet: RootElection) -> bool:
        return packet.number >= self.terms.promised


class NoWaiting(RootLease):
    """8.3: a new root decides while the lease of the last one still runs."""

    def elected(self, claimed_ns: int, *, somebody_before: bool, helped_ns: int) -> None:
        super().elected(claimed_ns, somebody_before=False, helped_ns=helped_ns)


class OwnLease(RootLease):
    """8.3: a root needs nobody's word to go on deciding."""

    def _confirm(self) -> None:
        self.until_ns = self._sent[max(self._sent)][0] + self.length_ns


MUTANTS: dict[str, Parts] = {
    "A1-history": Parts(client=NoHistory),
    "C6-outbox": Parts(client=NoOutbox),
    "C9-again": Parts(client=PublishesAgain),
    "C9-row": Parts(client=silently_fenced),
    "A2-confirmation": _with_topics(members_type=NoConfirmation),
    "A3-all-members": _with_topics(ordering_type=CommitsForThePresent),
    "A4-root-check": _with_tree(parenting_type=NoRootCheck),
    "A5-set-difference": _with_topics(channels_type=LastIds),
    "A6-until-stable": _with_topics(channels_type=ShortBuffer),
    "A9-opening": _with_topics(authority_type=OpensAtOnce),
    "W2-followers": _with_topics(authority_type=CountsNoFollowers),
    "A10-unanimous": _with_tree(election_type=Proclaimed),
    "A11-local-locks": _with_topics(ordering_type=LocksBlockAll),
    "A12-grounded": _with_topics(channels_type=NeverGrounded),
    "A13-open-ids": _with_topics(channels_type=AnyChannel),
    "ST2-all-voted": _with_topics(stability_type=EarlyBase),
    "ST3-base-up": _with_topics(stability_type=BaseUntold),
    "R-orphans": _with_topics(orphans_type=NoOrphans),
    "PC-one-promise": _with_tree(election_type=ManyPromises),
    "PC-waits": _with_tree(lease_type=NoWaiting),
    "PC-lease": _with_tree(lease_type=OwnLease),
}
