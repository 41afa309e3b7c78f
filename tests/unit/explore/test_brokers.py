"""Every interleaving of the smallest broker trees: the promises hold, and machines that break them are caught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.broker.node import Broker
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.topics import Topics
from ordercast.client.machine import ClientMachine
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection
from ordercast.explore import BrokerScope, explore_brokers, replay, write_schedule
from ordercast.explore.brokers.processes import LOST_SESSION, ExploredParts
from ordercast.explore.brokers.promises import Promises, follows
from ordercast.explore.brokers.scope import (
    ExploredClient,
    Talk,
    Trouble,
    parse_crash,
    parse_members,
    parse_talk,
    settings_of,
    tree_of,
)
from ordercast.pubsub.client_packets import Entries
from ordercast.pubsub.filters import allows

A = Topic("a")
EXCLUDED = settings_of({"partitions": "excluded"})


def scope(brokers: int, members: str, *talks: str, **others: Any) -> BrokerScope:
    return BrokerScope(
        brokers=brokers,
        members=parse_members(members),
        parents=tree_of("line", brokers, ()),
        talks=tuple(parse_talk(talk, Guarantee.CAUSAL) for talk in talks) or None,
        **others,
    )


@pytest.mark.parametrize("guarantee", ["eventual", "fifo", "causal", "total"])
def test_two_brokers_hold_every_guarantee_in_every_interleaving(guarantee: str) -> None:
    found = explore_brokers(scope(2, "0:a;1:a", f"0>a {guarantee}", f"1>a {guarantee}"))
    assert found.verdict == "holds"
    assert found.states > 300


def test_totals_among_others_hold_on_three_brokers() -> None:
    found = explore_brokers(scope(3, "0:a;2:a", "0>a total", "1>a"))
    assert found.verdict == "holds"


def test_a_crash_at_any_moment_loses_nothing() -> None:
    trouble = Trouble(crash=1)
    found = explore_brokers(scope(2, "0:a;1:a", "1>a", trouble=trouble, settings=EXCLUDED))
    assert found.verdict == "holds"
    assert found.states > 1000


def test_a_filter_misses_nothing_of_a_topic_that_its_client_begins() -> None:
    """Reports of stability overtake a membership that is still being asked for: links may be that slow."""
    found = explore_brokers(scope(1, "0:a.>;0:a.>", "0>a.x", "1>a.x", trouble=Trouble(early=2)))
    assert found.verdict == "holds"
    assert found.states > 5000


class NobodyInAdvance(Authority):
    def followers(self, topic: Topic) -> dict[Origin, int]:
        return {}


class OldFilters(Broker):
    """Only the edge knows who follows a filter."""

    topics_type = type("OldTopics", (Topics,), {"authority_type": NobodyInAdvance})


def test_a_filter_that_only_the_edge_knows_misses_a_topic_that_begins_between_two_edges() -> None:
    """With filters in the roster the same scope holds: a row of the page, which takes longer."""
    trouble = Trouble(cut=0, early=1)
    found = explore_brokers(scope(1, "0:a.>;0:b", "1>a.x", trouble=trouble), parts=ExploredParts(broker=OldFilters))
    assert found.counterexample is not None
    assert found.counterexample.violation.check == "agreement"


class Forgetful(Broker):
    """Loses what a client publishes in its first packet."""

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        kept = [packet for packet in packets if not (isinstance(packet, Entries) and connection == self._client())]
        super().on_packets(connection, kept)

    def _client(self) -> int:
        return max((client.connection for client in self.topics.clients_in_order()), default=0)


class Repeating(ClientMachine):
    """Hands everything over twice."""

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        deliver = self.app.deliver
        for packet in packets:
            if isinstance(packet, Entries):
                deliver(packet.entries)
        super().on_packets(connection, packets)


def test_a_lost_publication_is_found_with_a_shortest_schedule_that_can_be_replayed(tmp_path: Path) -> None:
    found = explore_brokers(scope(1, "0:a;0:a", "0>a", "1>a"), parts=ExploredParts(broker=Forgetful))
    assert found.counterexample is not None
    assert found.counterexample.violation.check == "agreement"
    assert found.violating == ["m1:c0>a causal m2:c1>a causal: agreement"]
    path = tmp_path / "lost.toml"
    write_schedule(path, found.counterexample.schedule, found.counterexample.story)
    performed = replay(path)  # By honest brokers, which have more to do when the schedule ends.
    assert performed.violation is None
    assert performed.recorded == found.counterexample.violation
    assert len(performed.story) == len(found.counterexample.story)


def test_a_step_that_cannot_happen_is_named(tmp_path: Path) -> None:
    found = explore_brokers(scope(1, "0:a;0:a", "0>a"), parts=ExploredParts(client=Repeating))
    assert found.counterexample is not None
    schedule = msgspec.structs.replace(found.counterexample.schedule, steps=["b0 -> c7: Ping"])
    write_schedule(tmp_path / "odd.toml", schedule, ["?"])
    with pytest.raises(UsageError, match=r"odd\.toml: 'b0 -> c7: Ping' cannot happen here"):
        replay(tmp_path / "odd.toml")


def test_a_double_delivery_is_found() -> None:
    found = explore_brokers(scope(1, "0:a;0:a", "0>a"), parts=ExploredParts(client=Repeating))
    assert found.counterexample is not None
    assert found.counterexample.violation.check == "integrity"


def test_an_exploration_that_is_cut_short_decides_nothing() -> None:
    found = explore_brokers(scope(2, "0:a;1:a", "0>a", "1>a", "1>a"), limit_states=100)
    assert found.verdict == "undecided"


# --- the promises, from the definitions ---


def promises(*guarantees: Guarantee) -> Promises:
    """m1, m2, ... by c0, c1, c0, ... to both."""
    talks = tuple(Talk(i % 2, A, guarantee) for i, guarantee in enumerate(guarantees))
    return Promises(scope(1, "0:a;0:a"), talks)


def test_once_and_only_what_was_published() -> None:
    both = promises(Guarantee.EVENTUAL, Guarantee.EVENTUAL)
    assert both.safety(((~0, 0), (0,))) is None
    assert both.safety(((~0, 0, 0), ())).check == "integrity"  # type: ignore[union-attr]
    assert both.safety(((), (0,))).check == "integrity"  # type: ignore[union-attr]


def test_what_was_published_first_comes_first() -> None:
    three = promises(Guarantee.FIFO, Guarantee.FIFO, Guarantee.FIFO)
    assert three.safety(((~0, ~2), (2,))).check == "fifo"  # type: ignore[union-attr]
    assert three.safety(((~0, ~2), (0, 2))) is None


def test_an_answer_comes_after_its_question_but_only_where_order_was_asked_for() -> None:
    for guarantee, broken in ((Guarantee.CAUSAL, "causal"), (Guarantee.FIFO, None)):
        violation = promises(guarantee, guarantee).safety(((~0, 1), (0, ~1)))
        assert (violation.check if violation else None) == broken


def test_everybody_has_the_same_before_a_total() -> None:
    both = promises(Guarantee.TOTAL, Guarantee.EVENTUAL)
    assert both.safety(((~0, 1, 0), (~1, 0))).check == "total"  # type: ignore[union-attr]
    assert both.safety(((~0, 1, 0), (~1, 1, 0))) is None


def test_at_rest_all_have_all_but_sessions_that_were_given_up() -> None:
    both = promises(Guarantee.CAUSAL, Guarantee.CAUSAL)
    assert both.agreement(((~0, 0), ())).check == "agreement"  # type: ignore[union-attr]
    assert both.agreement(((~0, 0, ~1, 1), (0, 1))) is None
    assert both.agreement(((~0, 0, 1), (~1, LOST_SESSION))) is None
    assert both.agreement(((LOST_SESSION,), (~1, 1))) is None, "its own publication may be gone with it"


@pytest.mark.parametrize("pattern", ["a", "a.b", "a.>", "a.*", "*.b", ">", "*", "a.*.c", "a.b.>"])
@pytest.mark.parametrize("topic", ["a", "a.b", "b.b", "a.b.c", "a.c.c", "b"])
def test_a_second_reading_of_filters_agrees_with_the_first(pattern: str, topic: str) -> None:
    assert follows(ExploredClient(0, (Topic(pattern),)), Topic(topic)) == allows([pattern], topic)


# --- what makes no sense is refused in one line ---


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (lambda: explore_brokers(scope(9, "0:a", "0>a")), "nodes: 9"),
        (lambda: explore_brokers(scope(1, "3:a", "0>a")), "no broker b3"),
        (lambda: explore_brokers(scope(1, "0:a", "4>a")), "no client c4"),
        (lambda: explore_brokers(scope(1, "0:a", "0>a.>")), "is a filter"),
        (lambda: explore_brokers(scope(1, "0:a", "0>a", trouble=Trouble(cut=0), settings=EXCLUDED)), "dead client"),
        (lambda: parse_members("a"), "not like"),
        (lambda: parse_talk("0>a sometimes", Guarantee.CAUSAL), "not like"),
        (lambda: parse_crash("1 maybe"), "not like"),
        (lambda: settings_of({"lease_ms": -1}), "options of broker"),
        (lambda: tree_of("ring", 3, ()), "line or a star"),
        (lambda: tree_of("line", 3, ((0, 1), (1, 0))), "not a tree"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(bad: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        bad()
