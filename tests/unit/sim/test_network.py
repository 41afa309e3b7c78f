"""Links: how long, in which order, how often and whether at all."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from tests.support.sim_lab import MS, Lab, publish, scenario, schedule, steady

EXPONENTIAL = {"kind": "exponential", "mean_ms": 10.0, "min_ms": 2.0}


def _one_way(count: int = 1000, seed: int = 0, **link: object) -> Lab:
    return Lab(scenario(workload=[steady("n0", count)], link=link), seed=seed)


def test_a_constant_latency_is_kept_to_the_nanosecond() -> None:
    assert set(_one_way(20, latency_ms=7.25).travel_ms("n0", "n1").values()) == {7.25}


def test_uniform_latencies_fill_their_interval() -> None:
    times = _one_way(fifo=False, latency_ms={"kind": "uniform", "low_ms": 3, "high_ms": 9}).travel_ms("n0", "n1")
    assert 3 <= min(times.values()) < 3.2
    assert 8.8 < max(times.values()) <= 9
    assert sum(times.values()) / len(times) == pytest.approx(6, abs=0.2)


def test_exponential_latencies_have_their_mean_and_their_minimum() -> None:
    times = _one_way(fifo=False, latency_ms=EXPONENTIAL).travel_ms("n0", "n1").values()
    assert 2 <= min(times) < 2.2
    assert sum(times) / len(times) == pytest.approx(12, rel=0.1)
    assert max(times) > 40


def test_lognormal_latencies_have_their_median_and_spread() -> None:
    latency = {"kind": "lognormal", "median_ms": 8, "sigma": 0.5}
    times = sorted(_one_way(fifo=False, latency_ms=latency).travel_ms("n0", "n1").values())
    assert times[len(times) // 2] == pytest.approx(8, rel=0.08)
    # One sigma above the median lies the 84th percentile, at median * e ** sigma.
    assert times[int(len(times) * 0.8413)] == pytest.approx(8 * 1.6487, rel=0.1)


def test_a_fifo_link_never_reorders_and_another_one_does() -> None:
    ordered = _one_way(200, fifo=True, latency_ms=EXPONENTIAL).messages("receive", "n1")
    unordered = _one_way(200, fifo=False, latency_ms=EXPONENTIAL).messages("receive", "n1")
    sent = [f"n0#{i}" for i in range(1, 201)]
    assert ordered == sent
    assert unordered != sent
    assert sorted(unordered) == sorted(sent)


def test_a_fifo_link_delays_only_what_would_overtake() -> None:
    ordered = _one_way(200, fifo=True, latency_ms=EXPONENTIAL).travel_ms("n0", "n1")
    unordered = _one_way(200, fifo=False, latency_ms=EXPONENTIAL).travel_ms("n0", "n1")
    assert all(ordered[msg] >= unordered[msg] for msg in ordered)
    assert sum(ordered[msg] == unordered[msg] for msg in ordered) > 20


def test_what_survived_a_crash_in_its_senders_queue_is_not_overtaken_on_a_fifo_link() -> None:
    """The next life of the sender begins with an empty queue, and the latency is the same for all."""
    lab = Lab(
        scenario(
            node={"bandwidth_mbps": 0.05},
            link={"latency_ms": 5.0},
            workload=[{"kind": "open", "rate_per_s": 300, "arrival": "regular", "publishers": ["n0"], "stop_ms": 600}],
            fault=[{"kind": "crash", "node": "n0", "at_ms": 200, "recover_ms": 220, "survive": "all"}],
            duration_ms=1000,
        )
    )
    numbers = [int(message.partition("#")[2]) for message in lab.messages("receive", "n1")]
    assert len(numbers) > 100
    assert numbers == sorted(numbers)


def test_packets_are_lost_at_the_rate_asked_for() -> None:
    lab = _one_way(loss=0.2)
    assert 150 < len(lab.of("drop")) < 250
    assert len(lab.of("receive", "n1")) == 1000 - len(lab.of("drop"))
    assert lab.manifest.faults == {"lost": len(lab.of("drop"))}


def test_packets_are_doubled_at_the_rate_asked_for() -> None:
    lab = _one_way(duplicate=0.2)
    assert 1150 < len(lab.of("receive", "n1")) < 1250
    assert len(lab.of("deliver", "n1")) == 1000


def test_links_are_clean_once_the_drain_has_begun() -> None:
    """What is sent after the duration arrives exactly once, however bad the link was before."""
    lab = Lab(
        scenario(
            overlay={"kind": "line", "nodes": 3},
            duration_ms=2,
            workload=[steady("n0", 1000, 0.002)],
            link={"loss": 0.4, "duplicate": 0.4},
        )
    )
    relayed = set(lab.messages("send", "n1"))
    assert len(relayed) > 400
    assert lab.messages("deliver", "n2") == list(dict.fromkeys(lab.messages("receive", "n1")))
    assert len(lab.messages("receive", "n2")) == len(relayed)


def test_an_override_changes_its_link_only_and_one_way_only_one_direction() -> None:
    lab = Lab(
        scenario(
            overlay={"kind": "line", "nodes": 3},
            workload=[schedule(publish("n0", 0), publish("n2", 0))],
            link={"latency_ms": 5},
            links=[{"between": ["n0", "n1"], "latency_ms": 50, "one_way": True}],
        )
    )
    assert lab.travel_ms("n0", "n1") == {"n0#1": 50}
    assert lab.travel_ms("n1", "n0") == {"n2#1": 5}
    assert lab.travel_ms("n1", "n2") == {"n0#1": 5}


def test_an_override_works_both_ways_unless_told_otherwise() -> None:
    lab = Lab(
        scenario(
            workload=[schedule(publish("n0", 0), publish("n1", 0))], links=[{"between": ["n1", "n0"], "latency_ms": 50}]
        )
    )
    assert lab.travel_ms("n0", "n1") == {"n0#1": 50}
    assert lab.travel_ms("n1", "n0") == {"n1#1": 50}


@pytest.mark.parametrize("removed", [0, 17, 59])
def test_removing_one_publication_leaves_every_other_draw_as_it_was(removed: int) -> None:
    """Randomness belongs to the publication, whatever its number: latency, loss and duplication of the rest stay."""
    steps = [publish(f"n{i % 5}", i) for i in range(60)]
    world = {
        "overlay": {"kind": "tree", "nodes": 5},
        "link": {"latency_ms": EXPONENTIAL, "fifo": False, "loss": 0.1, "duplicate": 0.1},
    }
    complete = Lab(scenario(**world, workload=[schedule(*steps)]))
    fewer = Lab(scenario(**world, workload=[schedule(*steps[:removed], *steps[removed + 1 :])]))

    def facts(lab: Lab) -> list[tuple[object, ...]]:
        """Every event, with each message known by the time of its publication."""
        published = {row["msg"]: row["time_ns"] for row in lab.of("publish")}
        rows = [r for r in lab.rows if published[r["msg"]] != removed * MS]
        return sorted((r["time_ns"], r["node"], r["kind"], published[r["msg"]], r["peer"] or "") for r in rows)

    assert len(complete.rows) > len(fewer.rows)
    assert facts(complete) == facts(fewer)


def test_messages_published_at_one_instant_have_draws_of_their_own() -> None:
    steps = [publish("n0", 0) for _ in range(30)]
    lab = Lab(scenario(workload=[schedule(*steps)], link={"latency_ms": EXPONENTIAL, "fifo": False}))
    assert len(set(lab.travel_ms("n0", "n1").values())) == 30
    small = [publish("n0", 0, payload_bytes=0) for _ in range(30)]
    lab = Lab(scenario(workload=[schedule(*small)], link={"latency_ms": EXPONENTIAL, "fifo": False}))
    assert len(set(lab.travel_ms("n0", "n1").values())) == 30


def test_two_links_do_not_share_their_draws() -> None:
    lab = Lab(
        scenario(
            overlay={"kind": "star", "nodes": 3},
            workload=[steady("n0", 50)],
            link={"fifo": False, "latency_ms": EXPONENTIAL},
        )
    )
    assert lab.travel_ms("n0", "n1") != lab.travel_ms("n0", "n2")


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ({"loss": 1.0}, "link.loss: 1.0"),
        ({"duplicate": -0.1}, "link.duplicate: -0.1"),
        ({"latency_ms": -1.0}, "link.latency_ms: -1.0 is negative"),
        ({"latency_ms": {"kind": "uniform", "low_ms": 5, "high_ms": 4}}, "link.latency_ms.high_ms: 4.0 is below"),
        ({"latency_ms": {"kind": "uniform", "low_ms": -5, "high_ms": 4}}, "link.latency_ms.low_ms: -5.0 is negative"),
        ({"latency_ms": {"kind": "exponential", "mean_ms": -5}}, "link.latency_ms.mean_ms: -5.0 is negative"),
        ({"latency_ms": {"kind": "lognormal", "median_ms": 1, "sigma": -1}}, "link.latency_ms.sigma: -1.0 is"),
    ],
)
def test_an_impossible_link_is_named(link: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lab(scenario(link=link))
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("links", "complaint"),
    [
        ([{"between": ["n0", "n2"], "loss": 0.1}], "links[0].between: n0 and n2 are not neighbours"),
        ([{"between": ["n0", "nn1"], "loss": 0.1}], "links[0].between: unknown node 'nn1'; did you mean 'n1'?"),
        ([{"between": ["n0", "n1"], "loss": 7.0}], "links[0].loss: 7.0"),
    ],
)
def test_an_override_of_no_link_is_named(links: list[dict[str, object]], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lab(scenario(overlay={"kind": "line", "nodes": 3}, links=links))
    assert str(caught.value).startswith(complaint)
