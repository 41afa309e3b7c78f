"""The partitioned key-value store: serializable on any atomic multicast, strictly so with real-time order."""

from __future__ import annotations

import pytest

from ordercast.core.chance import mix, salt
from ordercast.core.errors import UsageError
from ordercast.services.partitioned_kv import KeyValueReplica, Partitioning
from tests.support.serializability import Event, explains
from tests.support.store_lab import Step, StoreLab

ONE = b"1"


def torn_read(protocol: str) -> StoreLab:
    """A write to two partitions is slow on its way to the second; a client reads the first and then the second.

    The puts before it raise the first server's clock, which is what misleads Skeen's protocol.
    """
    lab = StoreLab(protocol, 3, slow={("n0", "n1"): 200.0})
    x, y, z = lab.key_at(0), lab.key_at(1), lab.key_at(0, "z")
    lab.client("n0", [([], {z: b"%d" % i}) for i in range(4)])
    lab.client("n2", [([], {x: ONE, y: ONE})], at=20.0)
    lab.client("n2", [([x], {}), ([y], {})], at=60.0)
    lab.run()
    return lab


def test_a_store_without_real_time_order_answers_from_the_past() -> None:
    for protocol in ("daisy-chain", "skeen"):
        lab = torn_read(protocol)
        assert lab.unfinished == 0
        reads = [event.reads for event in lab.history if event.reads]
        assert reads == [{lab.key_at(0): ONE}, {lab.key_at(1): None}]
        assert explains(lab.history, real_time=False)
        assert not explains(lab.history, real_time=True)


def test_real_time_order_makes_the_same_store_strictly_serializable() -> None:
    for protocol in ("daisy-chain-real-time", "skeen-real-time", "delporte-fauconnier"):
        lab = torn_read(protocol)
        assert lab.unfinished == 0
        assert explains(lab.history, real_time=True)


def busy(protocol: str, seed: int, size: int = 4, replicas: int = 1) -> StoreLab:
    """Clients at every node that read and write random keys of random partitions."""
    lab = StoreLab(protocol, size * replicas, seed=seed, replicas=replicas)
    dice = salt(seed, "busy-store")
    keys = [lab.key_at(partition) for partition in range(size)]
    for i in range(size):
        steps: list[Step] = []
        for j in range(5):
            bits = mix(dice, i, j)
            chosen = [key for place, key in enumerate(keys) if bits >> place & 1] or keys[:1]
            steps.append((chosen, {}) if bits >> 10 & 1 else ([], dict.fromkeys(chosen, b"%d-%d" % (i, j))))
        lab.client(f"n{i * replicas}", steps)
    return lab


@pytest.mark.parametrize("protocol", ["daisy-chain-real-time", "skeen-real-time", "delporte-fauconnier"])
def test_random_operations_are_strictly_serializable_with_real_time_order(protocol: str) -> None:
    for seed in range(25):
        lab = busy(protocol, seed)
        assert explains(lab.run(), real_time=True), f"seed {seed}"
        assert (lab.unfinished, len(lab.history)) == (0, 20)


def test_random_operations_find_the_lack_of_real_time_order() -> None:
    assert not all(explains(busy("daisy-chain", seed).run(), real_time=True) for seed in range(25))


def test_a_replicated_store_goes_on_after_a_crash_in_every_partition() -> None:
    for seed in range(5):
        lab = busy("replicated-daisy-chain-real-time", seed, size=3, replicas=3)
        for partition in range(3):
            lab.crash(f"n{3 * partition + 1 + seed % 2}", at=15.0 + 10 * partition, noticed_after=20.0)
        assert explains(lab.run(), real_time=True), f"seed {seed}"
        assert (lab.unfinished, len(lab.history)) == (0, 15)


def test_a_replicated_store_survives_the_crash_of_leaders_that_host_no_client() -> None:
    lab = StoreLab("replicated-daisy-chain-real-time", 6, replicas=3)
    x, y = lab.key_at(0), lab.key_at(1)
    lab.client("n1", [([], {x: b"%d" % i, y: b"%d" % i}) for i in range(6)])
    lab.client("n5", [([x, y], {}) for _ in range(6)])
    lab.crash("n0", at=25.0, noticed_after=15.0)
    lab.crash("n3", at=60.0, noticed_after=15.0)
    assert explains(lab.run(), real_time=True)
    assert (lab.unfinished, len(lab.history)) == (0, 12)
    assert lab.replicas["n1"].data == lab.replicas["n2"].data == {x: b"5"}


def test_the_checker_tells_strict_from_mere_serializability() -> None:
    write = Event(0, 10, {}, {"x": ONE})
    old = Event(20, 30, {"x": None})
    assert explains([write, old], real_time=False)
    assert not explains([write, old], real_time=True)
    assert explains([write, Event(5, 30, {"x": None})], real_time=True)
    assert not explains([write, Event(20, 30, {"x": b"2"})], real_time=False)


def test_operations_that_make_no_sense_are_refused() -> None:
    store = KeyValueReplica("n0", Partitioning([["n0"], ["n1"]]))
    with pytest.raises(UsageError, match="at least one key"):
        store.begin()
    with pytest.raises(UsageError, match="c0: only nodes of the store can ask"):
        KeyValueReplica("c0", Partitioning([["n0"]])).begin(["x"])
    with pytest.raises(UsageError, match="named twice"):
        Partitioning([["n0"], ["n0"]])
    with pytest.raises(UsageError, match="every partition needs a node"):
        Partitioning([["n0"], []])


def test_a_removed_key_is_absent_and_foreign_payloads_are_skipped() -> None:
    store = KeyValueReplica("n0", Partitioning([["n0"]]))
    for value, found in ((ONE, None), (None, ONE), (ONE, None)):
        _, posting = store.begin(["x"], {"x": value})
        answer, result = store.deliver(posting.payload)
        assert answer is None
        assert result is not None
        assert result.values == {"x": found}
    assert store.deliver(b"not ours") == (None, None)
    assert store.data == {"x": ONE}
