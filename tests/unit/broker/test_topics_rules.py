"""Each rule is needed: without it the scenario that it is for goes wrong (the ablations of the topics half)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.join_wave import JoinWaves
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.member import Coverage, Member, WaitingMember
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.client_packets import Resume
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector
from tests.support.topics_tree import Tree
from tests.unit.broker import test_following as followers
from tests.unit.broker import test_topics_channels as channels
from tests.unit.broker import test_topics_members as members
from tests.unit.broker import test_topics_order as order


class NoConfirmation(Members):
    def confirmation_needed(self) -> bool:
        return False


class AnyHistory(Members):
    def outdated(self, packet: Resume, node: TopicNode, waiting: WaitingMember) -> bool:
        return False


class PresentLinksOnly(Ordering):
    def covers_all(self, node: TopicNode, covered: Coverage) -> bool:
        return True


class LastNumbers(Channels):
    def lacking(self, node: TopicNode, have: Summary, base: Vector) -> list[Publication]:
        last = {origin: max([low, *extras]) for origin, (low, extras) in have.items()}
        return [entry for entry in node.log if entry.number > last.get(entry.origin, 0) and entry.origin in last]


class SmallBuffer(Channels):
    def lacking(self, node: TopicNode, have: Summary, base: Vector) -> list[Publication]:
        return super().lacking(node, have, base)[-5:]


class EarlyGrants(Authority):
    def may_open(self, node: TopicNode) -> bool:
        return True


class LocksBlockLinks(Ordering):
    def passing(self, _node: TopicNode, entries: tuple[Publication, ...]) -> tuple[Publication, ...]:
        blocked = [entry for entry in entries if entry.guarantee < 3 and self.locked(_node, entry)]
        for entry in blocked:
            _node.hold.add(entry)
        return tuple(entry for entry in entries if entry not in blocked)


class NeverReset(Channels):
    def must_be_grounded(self) -> bool:
        return False


class AnyOpenId(Channels):
    def current(self, node: TopicNode, open_id: int) -> bool:
        return True


class NoCloseHandshake(Orphans):
    def waits_for_the_parent(self) -> bool:
        return False


class NoOrphans(Orphans):
    def adopts(self) -> bool:
        return False


class NobodyInAdvance(Authority):
    def followers(self, topic: Topic) -> dict[Origin, int]:
        return {}


class ToldOnce(Authority):
    def followers(self, topic: Topic) -> dict[Origin, int]:
        return {} if self.book.live(topic) else super().followers(topic)


def receivers_only(self: Topics, node: TopicNode, member: Member) -> bool:
    return member.receives and not member.leaving


class AnyFewKnow(JoinWaves):
    def enough(self, recorded: set[NodeId]) -> bool:
        return True


@pytest.mark.parametrize(
    ("part", "broken", "scenario"),
    [
        (
            "members_type",
            NoConfirmation,
            members.test_a_client_that_moves_is_served_only_after_the_root_has_confirmed_it,
        ),
        (
            "members_type",
            AnyHistory,
            channels.test_a_history_that_was_cut_for_a_log_that_is_gone_is_asked_for_again,
        ),
        (
            "members_type",
            AnyHistory,
            channels.test_a_piece_of_a_history_that_comes_after_a_reset_waits_for_the_pieces_before_it,
        ),
        ("ordering_type", PresentLinksOnly, order.test_a_commit_waits_for_a_member_whose_branch_is_cut_off),
        ("channels_type", LastNumbers, channels.test_a_total_and_an_unknown_publisher_survive_a_new_link),
        ("channels_type", SmallBuffer, channels.test_each_side_of_a_new_link_gets_exactly_what_it_lacks_in_order),
        ("authority_type", EarlyGrants, members.test_a_new_root_grants_nothing_before_every_member_has_reported),
        ("ordering_type", LocksBlockLinks, order.test_a_lock_never_stops_what_another_broker_has_admitted),
        ("channels_type", NeverReset, channels.test_a_stale_log_is_no_reference_for_a_client_that_waits_there),
        ("channels_type", AnyOpenId, channels.test_what_was_sent_before_a_channel_was_opened_again_is_ignored),
        ("orphans_type", NoCloseHandshake, channels.test_a_closing_broker_keeps_what_it_had_until_others_hold_it),
        ("orphans_type", NoOrphans, channels.test_orphans_are_published_again_after_the_members_have_reported),
        (
            "authority_type",
            NobodyInAdvance,
            followers.test_a_follower_does_not_miss_the_first_publication_of_a_new_topic,
        ),
        (
            "authority_type",
            NobodyInAdvance,
            followers.test_a_follower_without_an_edge_does_not_miss_the_first_publication_of_a_new_topic,
        ),
        ("authority_type", ToldOnce, followers.test_members_in_advance_are_known_wherever_the_first_member_is),
        (
            "waits_for",
            receivers_only,
            followers.test_a_follower_that_only_publishes_on_a_new_topic_does_not_miss_what_others_say,
        ),
        ("waves_type", AnyFewKnow, members.test_where_partitions_are_possible_a_join_needs_a_majority_that_knows_it),
    ],
)
def test_without_the_rule_its_scenario_goes_wrong(
    part: str, broken: object, scenario: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario()
    monkeypatch.setattr(Tree, "topics_type", type("Mutant", (Topics,), {part: broken}))

    with pytest.raises(AssertionError):
        scenario()
