"""Builds the topics half of a broker from its parts, and says which part knows which."""

from __future__ import annotations

from typing import ClassVar

from ordercast.broker.archive.duty import ArchiveDuty
from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.archive.ports import SegmentFiles
from ordercast.broker.archive.repair import ArchiveRepair
from ordercast.broker.archive.serving import Serving
from ordercast.broker.place import BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.ports import TreePort
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.budgets import Budgets
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.copies import Copies
from ordercast.broker.topics.cuts import Cuts
from ordercast.broker.topics.gaps import Gaps
from ordercast.broker.topics.join_wave import JoinWaves
from ordercast.broker.topics.looking import Looking
from ordercast.broker.topics.membership.adoption import Adoption
from ordercast.broker.topics.membership.endings import Endings
from ordercast.broker.topics.membership.following import Following
from ordercast.broker.topics.membership.leaving import Leaving
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.membership.presence import Presence
from ordercast.broker.topics.membership.relaying import Relaying
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.portions import Portions
from ordercast.broker.topics.roster_news import RosterNews
from ordercast.broker.topics.sessions.absence import Absence
from ordercast.broker.topics.sessions.folding import Folding
from ordercast.broker.topics.sessions.tickets import Tickets
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.state.topics_state import TopicsState
from ordercast.broker.topics.watching import Watching
from ordercast.core.process import Connection, Wires
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import RosterSync


class TopicsParts(TopicsState):
    """The parts, made one after the other. Their types are class attributes, so that a test can replace one.

    A part knows those that it is given, which were made before it; what a later one has to do it asks for by a port.
    """

    kept_type: ClassVar[type[KeptTopics]] = KeptTopics
    grants_type: ClassVar[type[Grants]] = Grants
    ordering_type: ClassVar[type[Ordering]] = Ordering
    gaps_type: ClassVar[type[Gaps]] = Gaps
    stability_type: ClassVar[type[StabilityVotes]] = StabilityVotes
    copies_type: ClassVar[type[Copies]] = Copies
    orphans_type: ClassVar[type[Orphans]] = Orphans
    channels_type: ClassVar[type[Channels]] = Channels
    waves_type: ClassVar[type[JoinWaves]] = JoinWaves
    authority_type: ClassVar[type[Authority]] = Authority
    members_type: ClassVar[type[Members]] = Members
    cuts_type: ClassVar[type[Cuts]] = Cuts
    leaving_type: ClassVar[type[Leaving]] = Leaving
    folding_type: ClassVar[type[Folding]] = Folding

    def __init__(
        self, settings: BrokerSettings, wires: Wires, tree: TreePort, ledger: BrokerLedger,
        saved: SavedBroker | None = None, place: BrokerPlace | None = None, files: SegmentFiles | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, wires, tree, ledger, saved, place)
        self.grants = self.grants_type(self)
        self.ordering = self.ordering_type(self, self.grants)
        self.gaps = self.gaps_type(self, self.ordering)
        self.kept = self.kept_type(self, files, place.keep if place is not None else (), saved)
        self.stability = self.stability_type(self, self.ordering, self.grants, self.gaps, self.kept)
        self.copies = self.copies_type(self)
        self.orphans = self.orphans_type(self, saved)
        self.channels = self.channels_type(self, self.stability, self.copies, self.orphans)
        self.portions = Portions(self, self.channels)
        self.archive = ArchiveDuty(self, self.kept, self.channels)
        self.repair = ArchiveRepair(self, self.kept)
        self.serving = Serving(self, self.kept)
        self.watching = Watching(self, self.kept)
        self.news = RosterNews(self, self.grants, self.watching, self.orphans)
        self.news.kept_topics = self.archive
        self.looking = self.news.lookers = self.archive.lookers = Looking(self, self.kept, self.watching)
        self.waves = self.waves_type(self, self.news)
        self.absence = Absence(self)
        self.tickets = Tickets(self)
        self.authority = self.waves.root = self.authority_type(
            self, self.grants, self.news, self.waves, self.absence
        )  # fmt: skip
        self.presence = Presence(self)
        self.members = self.members_type(
            self, self.ordering, self.stability, self.copies, self.orphans, self.channels, self.authority,
            self.presence, self.tickets,
        )  # fmt: skip
        self.relaying = self.authority.answers = Relaying(self, self.authority, self.members)
        self.leaving = self.news.members = self.leaving_type(
            self, self.presence, self.orphans, self.channels, self.members
        )  # fmt: skip
        self.following = self.members.following = Following(
            self, self.watching, self.channels, self.members, self.leaving, self.tickets
        )  # fmt: skip
        self.endings = Endings(self, self.leaving)
        self.cuts = self.cuts_type(self, self.authority, self.orphans, self.kept)
        self.folding = self.folding_type(
            self, self.ordering, self.orphans, self.tickets, self.news, self.authority, self.kept, self.channels,
            self.cuts, self.gaps, self.archive,
        )  # fmt: skip
        self.budgets = Budgets(self, self.leaving)
        self.adoption = Adoption(self, self.orphans, self.ordering, self.channels, self.members, self.leaving)

    def learn(self, packet: RosterSync, source: Connection | None) -> None:
        """Learn another broker's knowledge of members, of sessions that are given up, and of closed ones."""
        if packet.closed:
            self.folding.close(packet.closed, source)
        self.news.learn(packet.roster, packet.fenced, source)
