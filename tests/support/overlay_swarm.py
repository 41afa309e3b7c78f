"""Random trees, random faults: every run ends in one tree, and on the way its invariants hold at every event."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ordercast.core.chance import salt
from ordercast.core.ids import NodeId
from ordercast.pubsub.settings import BrokerSettings
from ordercast.sim.clock import ns
from ordercast.sim.connections import Timing, drawn_pairs
from tests.support.overlay_lab import Lab, random_parents

Draw = Callable[..., Random]


def drawn(family: str, seed: int) -> Draw:
    """Chance by identity: what is drawn for one thing does not depend on whether another is there."""
    return lambda *identity: Random(salt(seed, "overlay", family, *identity))


def excluded_run(seed: int) -> Lab:
    """Crashes of any number of brokers but one, together or spread, some of them return empty."""
    draw = drawn("excluded", seed)
    size = draw("size").randint(3, 8)
    lab = Lab(
        random_parents(draw("tree"), size),
        BrokerSettings(
            partitions="excluded",
            total_degree=draw("degree").randint(3, 5),
            view_order=draw("order").choice(["ancestors-first", "hop-order", "score"]),
        ),
        seed=seed,
        latency=drawn_pairs(seed, 1, draw("latency").choice([5, 60, 300])),
        timing=Timing(detection_ms=draw("detection").choice([0, 5, 50, 700])),
    )
    window = draw("window").choice([1, 600, 4000])
    victims = draw("victims").sample(sorted(lab.parents), draw("crashes").randint(0, size - 1))
    returns = draw("returns").random() < 0.6
    for victim in victims:
        random = draw("crash", victim)
        at = random.uniform(0, window)
        _plan(lab, at, "crash", victim)
        if returns and random.random() < 0.7:
            _plan(lab, at + random.choice([1, 50, 800, 6000]) * random.uniform(0.5, 1.5), "start", victim)
    lab.run(window + 10_000)
    lab.settle()
    return lab


def primary_run(seed: int, *, durable: bool = True) -> Lab:
    """Crashes, returns, pauses, cut connections and partitions; in the end all that live can reach each other."""
    draw = drawn("primary", seed)
    size = draw("size").randint(3, 7)
    lab = Lab(
        random_parents(draw("tree"), size),
        BrokerSettings(
            partitions="primary",
            total_degree=draw("degree").randint(2, 5),
            lease_ms=draw("lease").choice([150, 1000, 3000]),
        ),
        seed=seed,
        latency=drawn_pairs(seed, 1, draw("latency").choice([5, 60, 150])),
        timing=Timing(
            detection_ms=draw("detection").choice([0, 5, 50]), silence_ms=draw("silence").choice([300, 2000, 6000])
        ),
        durable=durable,
    )
    nodes = sorted(lab.parents)
    window = draw("window").choice([1, 2000, 15_000])
    for victim in draw("victims").sample(nodes, draw("faults").randint(0, (size - 1) // 2)):
        random = draw("fault", victim)
        at = random.uniform(0, window)
        kind = random.choice(["crash", "crash", "pause"])
        _plan(lab, at, kind, victim)
        back = at + random.choice([50, 800, 6000]) * random.uniform(0.5, 1.5)
        if kind == "pause" or random.random() < 0.7:
            _plan(lab, back, "resume" if kind == "pause" else "start", victim)
    for i in range(draw("partitions").randint(0, 4)):
        random = draw("partition", i)
        sides = random.sample(nodes, random.randint(2, size))  # Whoever is on no side reaches everybody.
        cut = random.randint(1, len(sides) - 1)
        lasts_ms = random.choice([100, 3000, 12_000])
        _plan_partition(lab, random.uniform(0, window), lasts_ms, (sides[:cut], sides[cut:]))
    for i in range(draw("cuts").randint(0, 2)):
        random = draw("cut", i)
        one, other = random.sample(nodes, 2)
        lab.world.clock.at(ns(lab.now_ms + random.uniform(0, window)), lambda a, b: lab.world.cut(a, b), one, other)
    lab.run(window + 30_000)
    lab.settle()
    return lab


def half_down_run(seed: int) -> Lab:
    """Half of the brokers die and one of them returns: a bare majority, which answers in step over equal links."""
    draw = drawn("half_down", seed)
    size = draw("size").choice([4, 6, 8, 12])
    latency_ms = draw("latency").choice([5.0, 20.0, 50.0, 100.0])
    star: dict[str, str | None] = {f"b{i}": "b0" if i else None for i in range(size)}
    lab = Lab(
        random_parents(draw("tree"), size) if draw("shape").random() < 0.6 else star,
        BrokerSettings(
            partitions="primary", retry_ms=draw("retry").choice([100, 300]), lease_ms=draw("lease").choice([1000, 3000])
        ),
        seed=seed,
        latency=lambda _source, _target: latency_ms,
        timing=Timing(detection_ms=draw("detection").choice([0, 0, 5, 50])),
        durable=draw("disks").random() < 0.5,
    )  # fmt: skip
    lab.settle()  # The first lease may be too short for so deep a tree, and is longer from then on.
    victims = draw("victims").sample(sorted(lab.parents), size // 2)
    if lab.root() not in victims and draw("root").random() < 0.7:
        victims[0] = lab.root()
    pause_ms = draw("pause").choice([0, 0, 100, 2000])
    for victim in victims:
        lab.world.crash(victim)
        lab.run(pause_ms)
    lab.run(draw("wait").choice([10, 1000, 20_000]))
    lab.world.start(draw("returns").choice(victims))
    lab.settle(60_000)
    return lab


def joining_run(seed: int) -> Lab:
    """Brokers that join and leave while others crash; in the end everybody knows everybody who is there."""
    draw = drawn("joining", seed)
    size = draw("size").randint(3, 5)
    partitions = draw("partitions").choice(["excluded", "primary"])
    lab = Lab(
        random_parents(draw("tree"), size),
        BrokerSettings(partitions=partitions, total_degree=draw("degree").randint(3, 5)),  # type: ignore[arg-type]
        seed=seed,
        latency=drawn_pairs(seed, 1, draw("latency").choice([5, 60])),
        timing=Timing(detection_ms=draw("detection").choice([0, 5, 50])),
        durable=True,
    )
    old = sorted(lab.parents)
    new = [f"b{size + i}" for i in range(draw("joins").randint(1, 3))]
    for node in new:
        random = draw("join", node)
        seeds = tuple(f"{seed_node}:1" for seed_node in random.sample(old, 2))
        lab.add(node, seeds=seeds)
        _plan(lab, random.uniform(0, 2000), "start", node)
    leavers = draw("leavers").sample(old, draw("leaves").randint(0, 1))
    for node in leavers:
        _plan_leave(lab, draw("leave", node).uniform(0, 6000), node)
    stay = [node for node in old if node not in leavers]
    for victim in draw("victims").sample(stay, draw("crashes").randint(0, (size - 1) // 2)):
        random = draw("crash", victim)
        at = random.uniform(0, 4000)
        _plan(lab, at, "crash", victim)
        _plan(lab, at + random.uniform(1, 6000), "start", victim)
    lab.run(10_000)
    lab.settle_members(new, leavers)
    _remove_some(lab, random, [node for node in [*old, *new] if node not in leavers], leavers)
    return lab


def _remove_some(lab: Lab, random: Random, members: list[str], gone: list[str]) -> None:
    """Some die for good, fewer than half, and are removed one after the other."""
    dead = random.sample(members, random.randint(0, (len(members) - 1) // 2))
    for victim in dead:
        lab.world.crash(victim)
    lab.settle()
    for victim in dead:
        end = lab.now_ms + 60_000
        while any(victim in overlay.directory for overlay in lab.living().values()) and lab.now_ms < end:
            for node, overlay in lab.living().items():
                if overlay.is_root:
                    lab.world.act(node, lambda overlay=overlay, victim=victim: overlay.remove(NodeId(victim)))
            lab.run(random.uniform(1, 1000))
    lab.settle_members([node for node in members if node not in lab.parents and node not in dead], [*gone, *dead])


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
