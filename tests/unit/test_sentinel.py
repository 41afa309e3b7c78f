"""The sentinel finds every kind of disorder that one consumer can see, invents none, and stays small."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as draw

from ordercast.sentinel import CAUSAL, FIFO, KEY, Finding, Sentinel


def orders(findings: list[Finding]) -> list[str]:
    return [finding.order for finding in findings]


def test_a_message_that_a_later_one_of_its_publisher_overtook_is_found() -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob")
    first, second = ann.published("t"), ann.published("t")

    assert bob.delivered(second, "t") == []
    (finding,) = bob.delivered(first, "t")

    assert (finding.order, finding.publisher, finding.number) == (FIFO, ann.publisher, 1)
    assert bob.counts["fifo_violations"] == 1


def test_keys_of_one_publisher_may_overtake_each_other_but_not_themselves() -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob")
    one, two, three = (ann.published("t") for _ in range(3))

    bob.delivered(one, "t", key="x")
    bob.delivered(three, "t", key="x")

    assert orders(bob.delivered(two, "t", key="y")) == [FIFO]
    assert bob.counts["key_violations"] == 0

    cho = Sentinel("cho")
    cho.delivered(two, "t", key="x")
    assert orders(cho.delivered(one, "t", key="x")) == [FIFO, KEY]


def test_an_answer_before_its_question_is_found_when_the_question_comes() -> None:
    ann, bob, cho = Sentinel("ann"), Sentinel("bob"), Sentinel("cho")
    question = ann.published("t")
    bob.delivered(question, "t")
    answer = bob.published("t")

    assert cho.delivered(answer, "t") == []
    (finding,) = cho.delivered(question, "t")

    assert (finding.order, finding.publisher, finding.overtaken_by) == (CAUSAL, ann.publisher, bob.publisher)


def test_the_past_reaches_through_topics_and_processes_that_the_consumer_never_reads() -> None:
    """ann writes on t; bob, who read it, on u; cho, who reads u alone, on t; dan reads t alone."""
    ann, bob, cho, dan = (Sentinel(name) for name in ("ann", "bob", "cho", "dan"))
    cause = ann.published("t")
    bob.delivered(cause, "t")
    cho.delivered(bob.published("u"), "u")
    effect = cho.published("t")

    assert dan.delivered(effect, "t") == []
    assert orders(dan.delivered(cause, "t")) == [CAUSAL]


@pytest.mark.parametrize(("across", "found"), [(True, [CAUSAL]), (False, [])])
def test_topics_are_ordered_among_each_other_where_the_user_says_so(across: bool, found: list[str]) -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob", across_topics=across)
    cause, effect = ann.published("t"), ann.published("u")

    bob.delivered(effect, "u")

    assert orders(bob.delivered(cause, "t")) == found


def test_what_never_comes_is_missing_and_no_disorder() -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob")
    stamps = [ann.published("t") for _ in range(5)]

    bob.delivered(stamps[0], "t")
    bob.delivered(stamps[4], "t")

    assert (bob.missing, bob.counts["fifo_violations"]) == (3, 0)


def test_a_second_copy_is_a_duplicate_and_no_disorder() -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob")
    stamps = [ann.published("t") for _ in range(3)]
    for stamp in (*stamps, *stamps):
        assert bob.delivered(stamp, "t", key="k") == []

    assert bob.counts["duplicates"] == 3


class Said(NamedTuple):
    """A message of a random execution: its publisher, topic, number there and stamp, and what it depends on."""

    publisher: str
    topic: str
    number: int
    stamp: str
    past: frozenset[int]


def causal_execution(chance: random.Random, topics: int) -> list[Said]:
    """Three processes that read everything in causal order and publish in between; their sentinels stay silent."""
    watches = {name: Sentinel(name) for name in ("ann", "bob", "cho")}
    done: dict[str, set[int]] = {name: set() for name in watches}
    said: list[Said] = []
    for _ in range(25):
        name = chance.choice(list(watches))
        ready = [n for n, message in enumerate(said) if n not in done[name] and message.past <= done[name]]
        if ready and chance.random() < 0.6:
            number = chance.choice(ready)
            assert watches[name].delivered(said[number].stamp, said[number].topic) == []
        else:
            number, topic = len(said), f"t{chance.randrange(topics)}"
            stamp = watches[name].published(topic)
            said.append(Said(watches[name].publisher, topic, json.loads(stamp)[2], stamp, frozenset(done[name])))
        done[name].add(number)
    return said


@given(seed=draw.integers(0, 1 << 30), topics=draw.integers(1, 3))
def test_causal_executions_raise_nothing_and_a_disordered_reader_is_told_so(seed: int, topics: int) -> None:
    chance = random.Random(seed)
    said = causal_execution(chance, topics)
    order = list(range(len(said)))
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(order))
        order.insert(chance.randrange(len(order)), order.pop(place))
    reader = Sentinel("dan")

    found = {(f.publisher, f.topic, f.number) for n in order for f in reader.delivered(said[n].stamp, said[n].topic)}

    late = {
        (said[n].publisher, said[n].topic, said[n].number)
        for place, n in enumerate(order)
        if any(n in said[earlier].past for earlier in order[:place])
    }
    assert found <= late
    assert bool(found) == bool(late)


@pytest.mark.parametrize(
    "stamp",
    [
        None, "", b"", b"\xff\xfe", "null", "[]", "7", '{"a": 1}', '[1,"a",0,[]]', '[1,"a",true,[]]', '[2,"a",1,[]]',
        '[1,"",1,[]]', '[1,"a",1,[["b"]]]', '[1,"a",1,[["b","t",-1]]]', '[1,"a",1,{"b":1}]', '[1,"a",1,null]',
        "[" * 50_000,
        '[1,"a",1e400,[]]', '[1,"a",' + "9" * 5_000 + ",[]]", "x" * 100_000, '[1,["a"],1,[]]',
        '[1,"a",1,[[["b"],"t",1]]]',
    ],
)  # fmt: skip
def test_what_is_no_stamp_is_counted_and_harms_nobody(stamp: str | bytes | None) -> None:
    bob = Sentinel("bob")

    assert bob.delivered(stamp, "t") == []
    assert (bob.counts["unreadable"], bob.counts["delivered"]) == (1, 0)


@given(draw.recursive(draw.none() | draw.integers() | draw.text() | draw.floats(), draw.lists))
def test_any_json_is_a_stamp_or_counted(value: object) -> None:
    bob = Sentinel("bob")
    bob.delivered(json.dumps(value), "t")
    assert bob.counts["unreadable"] + bob.counts["delivered"] == 1


def test_memory_is_bounded_whatever_comes() -> None:
    bob = Sentinel("bob", lines=50, keys=60, missing=20, depends=10)
    for number in range(2_000):
        depends = [[f"x{number}", "t", 5]]
        bob.delivered(
            json.dumps([1, f"p{number}", 1 + number * 1_000_000, depends]), f"t{number % 300}", key=str(number)
        )
        bob.delivered(json.dumps([1, "p", 1 + number * 1_000_000, []]), "t")
        bob.published(f"t{number}")

    assert len(bob._arrived) <= 50
    assert len(bob._seen) <= 50
    assert len(bob._overtaken) <= 50
    assert len(bob._keys) <= 60
    assert len(bob._next) <= 50
    assert bob.missing <= 50 * 20
    assert len(bob.published("t1")) < 1_000
    assert bob.counts["forgotten"] > 0


def test_counters_are_prometheus_text() -> None:
    ann, bob = Sentinel("ann"), Sentinel("bob")
    one, two = ann.published("t"), ann.published("t")
    bob.delivered(two, "t")
    bob.delivered(one, "t")

    text = bob.prometheus()

    assert "# TYPE ordercast_sentinel_fifo_violations_total counter" in text
    assert 'ordercast_sentinel_fifo_violations_total{consumer="bob"} 1' in text
    assert 'ordercast_sentinel_missing{consumer="bob"} 0' in text


@pytest.mark.parametrize("name", ["", 'a"b', "a\nb", "x" * 300])
def test_a_name_that_a_metric_could_not_carry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a sentinel's name"):
        Sentinel(name)


def test_it_needs_the_standard_library_alone() -> None:
    ours = "[m for m in sys.modules if m.startswith('ordercast.') or m == 'msgspec']"
    code = f"import sys, ordercast.sentinel; print({ours})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ordercast.sentinel']"
