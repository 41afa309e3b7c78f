"""Random trees, random faults: every run ends in one tree, and on the way its invariants hold at every event."""

from __future__ import annotations

from random import Random

from ordercast.pubsub.settings import BrokerSettings
from ordercast.sim.clock import ns
from ordercast.sim.connections import Timing, drawn_pairs
from tests.support.overlay_lab import Lab, random_parents


def excluded_run(seed: int) -> Lab:
    """Crashes of any number of brokers but one, together or spread, some of them return empty."""
    random = Random(seed)
    size = random.randint(3, 8)
    lab = Lab(
        random_parents(random, size),
        BrokerSettings(
            partitions="excluded",
            total_degree=random.randint(3, 5),
            view_order=random.choice(["ancestors-first", "hop-order", "score"]),
        ),
        seed=seed,
        latency=drawn_pairs(seed, 1, random.choice([5, 60, 300])),
        timing=Timing(detection_ms=random.choice([0, 5, 50, 700])),
    )
    window = random.choice([1, 600, 4000])
    victims = random.sample(sorted(lab.parents), random.randint(0, size - 1))
    returns = random.random() < 0.6
    for victim in victims:
        at = random.uniform(0, window)
        _plan(lab, at, "crash", victim)
        if returns and random.random() < 0.7:
            _plan(lab, at + random.choice([1, 50, 800, 6000]) * random.uniform(0.5, 1.5), "start", victim)
    lab.run(window + 10_000)
    lab.settle()
    return lab


def primary_run(seed: int, *, durable: bool = True) -> Lab:
    """Crashes, returns, pauses, cut connections and partitions; in the end all that live can reach each other."""
    random = Random(seed)
    size = random.randint(3, 7)
    lab = Lab(
        random_parents(random, size),
        BrokerSettings(
            partitions="primary", total_degree=random.randint(2, 5), lease_ms=random.choice([150, 1000, 3000])
        ),
        seed=seed,
        latency=drawn_pairs(seed, 1, random.choice([5, 60, 150])),
        timing=Timing(detection_ms=random.choice([0, 5, 50]), silence_ms=random.choice([300, 2000, 6000])),
        durable=durable,
    )
    nodes = sorted(lab.parents)
    window = random.choice([1, 2000, 15_000])
    for victim in random.sample(nodes, random.randint(0, (size - 1) // 2)):
        at = random.uniform(0, window)
        kind = random.choice(["crash", "crash", "pause"])
        _plan(lab, at, kind, victim)
        back = at + random.choice([50, 800, 6000]) * random.uniform(0.5, 1.5)
        if kind == "pause" or random.random() < 0.7:
            _plan(lab, back, "resume" if kind == "pause" else "start", victim)
    for _ in range(random.randint(0, 4)):
        sides = random.sample(nodes, random.randint(2, size))  # Whoever is on no side reaches everybody.
        cut = random.randint(1, len(sides) - 1)
        lasts_ms = random.choice([100, 3000, 12_000])
        _plan_partition(lab, random.uniform(0, window), lasts_ms, (sides[:cut], sides[cut:]))
    for _ in range(random.randint(0, 2)):
        one, other = random.sample(nodes, 2)
        lab.world.clock.at(ns(lab.now_ms + random.uniform(0, window)), lambda a, b: lab.world.cut(a, b), one, other)
    lab.run(window + 30_000)
    lab.settle()
    return lab


def half_down_run(seed: int) -> Lab:
    """Half of the brokers die and one of them returns: a bare majority, which answers in step over equal links."""
    random = Random(seed)
    size = random.choice([4, 6, 8])
    star: dict[str, str | None] = {f"b{i}": "b0" if i else None for i in range(size)}
    lab = Lab(
        random_parents(random, size) if random.random() < 0.6 else star,
        BrokerSettings(
            partitions="primary", retry_ms=random.choice([100, 300]), lease_ms=random.choice([1000, 3000])
        ),
        seed=seed,
        latency=lambda _source, _target: 5.0,
        timing=Timing(detection_ms=random.choice([0, 0, 5, 50])),
        durable=random.random() < 0.5,
    )  # fmt: skip
    victims = random.sample(sorted(lab.parents), size // 2)
    if lab.root() not in victims and random.random() < 0.7:
        victims[0] = lab.root()
    pause_ms = random.choice([0, 0, 100, 2000])
    for victim in victims:
        lab.world.crash(victim)
        lab.run(pause_ms)
    lab.run(random.choice([10, 1000, 20_000]))
    lab.world.start(random.choice(victims))
    lab.settle(60_000)
    return lab


def joining_run(seed: int) -> Lab:
    """Brokers that join and leave while others crash; in the end everybody knows everybody who is there."""
    random = Random(seed)
    size = random.randint(3, 5)
    partitions = random.choice(["excluded", "primary"])
    lab = Lab(
        random_parents(random, size),
        BrokerSettings(partitions=partitions, total_degree=random.randint(3, 5)),  # type: ignore[arg-type]
        seed=seed,
        latency=drawn_pairs(seed, 1, random.choice([5, 60])),
        timing=Timing(detection_ms=random.choice([0, 5, 50])),
        durable=True,
    )
    old = sorted(lab.parents)
    new = [f"b{size + i}" for i in range(random.randint(1, 3))]
    for node in new:
        seeds = tuple(f"@{seed_node}" for seed_node in random.sample(old, 2))
        lab.add(node, seeds=seeds)
        _plan(lab, random.uniform(0, 2000), "start", node)
    leavers = random.sample(old, random.randint(0, 1))
    for node in leavers:
        _plan_leave(lab, random.uniform(0, 6000), node)
    for victim in random.sample([node for node in old if node not in leavers], random.randint(0, (size - 1) // 2)):
        at = random.uniform(0, 4000)
        _plan(lab, at, "crash", victim)
        _plan(lab, at + random.uniform(1, 6000), "start", victim)
    lab.run(10_000)
    lab.settle_members(new, leavers)
    return lab


def _plan_leave(lab: Lab, after_ms: float, node: str) -> None:
    def leave(_: None, __: None) -> None:
        if lab.world.life(node) is not None:
            lab.world.act(node, lab.overlay(node).leave)

    lab.world.clock.at(ns(lab.now_ms + after_ms), leave)


def _plan(lab: Lab, after_ms: float, deed: str, node: str) -> None:
    def act(_: None, __: None) -> None:
        if deed == "start":
            if lab.world.life(node) is None:
                lab.world.start(node)
        else:
            getattr(lab.world, deed)(node)

    lab.world.clock.at(ns(lab.now_ms + after_ms), act)


def _plan_partition(lab: Lab, after_ms: float, for_ms: float, sides: tuple[list[str], list[str]]) -> None:
    def begin(_: None, __: None) -> None:
        number = lab.world.partition(*sides)
        lab.world.clock.at(lab.world.clock.now + ns(for_ms), lambda *_: lab.world.heal(number))

    lab.world.clock.at(ns(lab.now_ms + after_ms), begin)
