"""The watch on deliveries raises what the judge would call broken, at once, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ordercast.trace.store import TraceError
from ordercast.verify.judge import judge_trace
from ordercast.verify.load import LoadedTrace, normalised
from ordercast.verify.online import Alarm, OnlineRow, OrderWatch
from tests.support.random_traces import table_of
from tests.support.trace_builder import manifest

T = "t"
LEVELS = ("eventual", "fifo", "causal", "total")


class Story:
    """Rows of nodes, told in the order in which they happen."""

    def __init__(self, *nodes: str) -> None:
        self.now = 0
        self.rows: dict[str, list[OnlineRow]] = {node: [] for node in nodes}
        self.numbers = dict.fromkeys(nodes, 0)
        for node in nodes:
            self.add(node, OnlineRow("join", self.now, info={"boot": "b"}))
            self.add(node, OnlineRow("subscribe", self.now, topic=T))

    def add(self, node: str, row: OnlineRow) -> None:
        self.now += 1
        self.rows[node].append(OnlineRow(row.kind, self.now, row.msg, row.topic, row.keys, row.guarantee, row.info))

    def publish(self, node: str, guarantee: str, key: str = "") -> str:
        self.numbers[node] += 1
        message = f"{node}~1/{T}#{self.numbers[node]}"
        self.add(node, OnlineRow("publish", 0, message, T, (key,), guarantee))
        return message

    def deliver(self, node: str, *messages: str) -> None:
        for message in messages:
            self.add(node, OnlineRow("deliver", 0, message, T))


def watched(story: Story, **limits: int) -> list[Alarm]:
    return OrderWatch(**limits).feed(story.rows)


def test_a_message_that_a_later_one_of_its_publisher_has_overtaken_is_told() -> None:
    story = Story("a", "b")
    first, second, third = (story.publish("a", "fifo") for _ in range(3))
    story.deliver("b", first, third, second)
    assert watched(story) == [Alarm("fifo", "b", T, second, third)]


def test_a_question_that_its_answer_has_overtaken_is_told_though_nobody_saw_the_chain() -> None:
    story = Story("a", "b", "c", "d")
    question = story.publish("a", "causal")
    story.deliver("b", question)
    answer = story.publish("b", "causal")
    story.deliver("c", question, answer)
    remark = story.publish("c", "causal")
    story.deliver("d", remark, question)
    assert watched(story) == [Alarm("causal", "d", T, question, remark)]


def test_what_two_nodes_deliver_in_opposite_orders_is_told_if_one_of_it_is_total() -> None:
    story = Story("a", "b", "c", "d")
    one, two = story.publish("a", "total", "k"), story.publish("b", "total", "k")
    other = story.publish("b", "total", "l")
    story.deliver("c", one, two, other)
    story.deliver("d", other, two, one)
    assert watched(story) == [Alarm("fifo", "d", T, two, other), Alarm("total", "d", T, one, two, "c")]


def test_eventual_messages_may_come_in_any_order() -> None:
    story = Story("a", "b", "c")
    messages = [story.publish("a", "eventual") for _ in range(5)]
    story.deliver("b", *messages)
    story.deliver("c", *reversed(messages))
    assert watched(story) == []


def test_what_was_published_before_a_stay_is_not_missed_in_it() -> None:
    story = Story("a", "b")
    before = story.publish("a", "causal")
    story.deliver("b", before)
    answer = story.publish("b", "causal")
    story.rows["c"] = []
    story.add("c", OnlineRow("join", 0, info={"boot": "b"}))
    story.add("c", OnlineRow("subscribe", 0, topic=T))
    story.deliver("c", answer, before)
    assert watched(story) == []


def test_a_new_stay_and_a_new_life_begin_anew() -> None:
    story = Story("a", "b")
    messages = [story.publish("a", "total") for _ in range(4)]
    story.deliver("b", *messages)
    story.add("b", OnlineRow("unsubscribe", 0, topic=T))
    story.add("b", OnlineRow("subscribe", 0, topic=T, info={"from": "earliest"}))
    story.deliver("b", *messages)
    story.add("b", OnlineRow("recover", 0, info={"state": "lost"}))
    story.deliver("b", *messages)
    assert watched(story) == []


def test_a_delivery_waits_for_its_publication_and_not_for_ever() -> None:
    story = Story("a", "b")
    messages = [story.publish("a", "fifo") for _ in range(3)]
    story.deliver("b", messages[0], messages[2], messages[1])
    watch = OrderWatch(patience=2)

    assert watch.feed({"b": story.rows["b"]}) == []
    assert watch.waiting == 3
    assert watch.feed({"a": story.rows["a"]}) == [Alarm("fifo", "b", T, messages[1], messages[2])]

    deaf = OrderWatch(patience=2)
    for rows in ({"b": story.rows["b"]}, {}, {}):
        deaf.feed(rows)
    assert (deaf.waiting, deaf.counts["unknown"]) == (0, 3)


def test_memory_is_bounded_and_what_is_forgotten_is_counted() -> None:
    story = Story("a", "b")
    messages = [story.publish("a", "total", f"k{i}") for i in range(500)]
    story.deliver("b", *messages[::2])
    watch = OrderWatch(messages=50, missing=10, lanes=50, patience=0)
    watch.feed(story.rows)
    assert len(watch._known) <= 50
    assert len(watch._lanes) <= 50
    lines = [line for reader in watch._topics[T].readers.values() for line in reader.lines.values()]
    assert lines
    assert all(len(line.missing) <= 10 for line in lines)
    assert watch.counts["forgotten"] > 400


def test_publishers_topics_and_readers_that_come_and_go_are_forgotten() -> None:
    watch = OrderWatch(publishers=10, topics=5, readers=3)
    for session in range(200):
        topic = f"t{session % 2 or session}"
        message = f"s~{session}/{topic}#1"
        watch.feed(
            {
                f"s{session}": [OnlineRow("publish", session, message, topic, ("k",), "causal")],
                f"r{session % 7}": [OnlineRow("deliver", session, message, topic)],
            }
        )
    assert len(watch._topics) <= 5
    assert all(len(topic.publishers) <= 10 for topic in watch._topics.values())
    assert all(len(topic.readers) <= 3 for topic in watch._topics.values())
    assert all(reader.seen.size <= 10 for topic in watch._topics.values() for reader in topic.readers.values())
    assert watch._past_bytes == sum(seen.past.nbytes for seen in watch._known.values())
    assert all(watch.counts[order] == 0 for order in ("fifo", "causal", "total"))


def test_what_is_forgotten_raises_no_alarm() -> None:
    forgotten = 0
    for seed in range(200):
        story = _random_story(random.Random(seed), broken=False)
        for limits in ({"publishers": 2}, {"readers": 2}, {"publishers": 1, "readers": 1}, {"messages": 3}):
            watch = OrderWatch(**limits)
            assert watch.feed(story.rows) == [], f"seed {seed}, {limits}"
            forgotten += watch.counts["forgotten"]
    assert forgotten > 1000


def test_deliveries_with_keys_are_watched_for_total_order_though_no_publisher_is() -> None:
    def delivered(*numbers: int) -> list[OnlineRow]:
        return [OnlineRow("deliver", 0, f"a~1/{T}#{number}", T, ("k",), "total") for number in numbers]

    watch = OrderWatch(patience=0)
    messages = [OnlineRow("deliver", 0, f"{p}~1/{T}#1", T, ("k",), "total") for p in "ab"]
    found = watch.feed({"here": messages, "there": messages[::-1], "elsewhere": delivered(2, 3)})

    assert [(alarm.order, alarm.node, alarm.other) for alarm in found] == [("total", "there", "here")]


def test_a_scope_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(TraceError, match="node x: order_scope = 'key'"):
        OrderWatch().feed({"x": [OnlineRow("join", 0, info={"order_scope": "key"})]})


def _random_story(chance: random.Random, *, broken: bool) -> Story:
    """Nodes that publish and deliver in one order that all guarantees allow, or with some deliveries swapped."""
    nodes = [f"n{i}" for i in range(chance.randrange(2, 5))]
    story = Story(*nodes)
    order: list[str] = []
    ahead = dict.fromkeys(nodes, 0)
    swapped = {node for node in nodes if broken and chance.random() < 0.5}
    for _ in range(chance.randrange(10, 60)):
        node = chance.choice(nodes)
        if chance.random() < 0.3:
            order.append(story.publish(node, chance.choice(LEVELS), chance.choice("kl")))
        else:
            stretch = order[ahead[node] : ahead[node] + chance.randrange(1, 4)]
            ahead[node] += len(stretch)
            if node in swapped and len(stretch) > 1:
                chance.shuffle(stretch)
            story.deliver(node, *stretch)
    for node in nodes:
        story.deliver(node, *order[ahead[node] :])
    return story


def _judged(story: Story) -> set[str]:
    """The orders that the judge says are broken."""
    rows: list[dict[str, Any]] = []
    for node, own in story.rows.items():
        for seq, row in enumerate(own):
            one = {"run": "r", "node": node, "seq": seq, "kind": row.kind, "time_ns": row.time_ns, "msg": row.msg}
            keys = list(row.keys) if row.kind == "publish" else None
            guarantee = row.guarantee if row.kind == "publish" else None
            rows.append({**one, "topic": row.topic, "keys": keys, "guarantee": guarantee})
    trace = LoadedTrace(
        "random", "r", manifest(guarantee="causal", scope="topic"), normalised(table_of(rows), "random")
    )
    verdict = judge_trace(trace, checks=["fifo", "causal", "total"])
    return {result.check for result in verdict.results if result.verdict == "fail"}


@pytest.mark.parametrize("broken", [False, True])
def test_it_is_silent_where_nothing_is_broken_and_loud_where_the_judge_says_so(broken: bool) -> None:
    alarmed = 0
    for seed in range(60):
        chance = random.Random(seed)
        story = _random_story(chance, broken=broken)
        watch = OrderWatch(patience=100)
        found = []
        left = {node: list(rows) for node, rows in story.rows.items()}
        while any(left.values()):  # Journals are read at different moments.
            piece = {node: rows[: chance.randrange(0, 9)] for node, rows in left.items()}
            left = {node: rows[len(piece[node]) :] for node, rows in left.items()}
            found += watch.feed(piece)
        found += watch.feed({})
        failed = _judged(story)
        assert bool(found) == bool(failed), f"seed {seed}: {found} {failed}"
        assert {alarm.order for alarm in found} - {"fifo"} <= failed | {"causal"}, f"seed {seed}"
        alarmed += bool(found)
    assert (alarmed > 20) == broken
