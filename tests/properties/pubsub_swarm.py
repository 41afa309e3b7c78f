"""A swarm of small random broker systems: any tree, any faults that the settings say it survives, judged every time.

    python -m tests.properties.pubsub_swarm --seeds 1000 --family restart

A seed is a whole run: tree, clients, latencies, faults, workload and every draw in it. A failing one prints what is
wrong, the scenario as TOML and the command that runs it again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ordercast.broker.topics.topics import Topics
from ordercast.core.errors import UsageError
from ordercast.scenario.load import dump_scenario, parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.pubsub.parts import Parts
from ordercast.sim.shrink import shrink
from tests.properties.swarm import Dice
from tests.support.pubsub_folding import FOLDING
from tests.support.pubsub_lab import Finding, run_pubsub
from tests.support.pubsub_liar import LIAR, SEALED, WITH_LIAR, WITH_LYING_BROKER

MIX = {"eventual": 0.3, "fifo": 0.1, "causal": 0.3, "total": 0.3}
Raw = dict[str, Any]


class Draft:
    """A scenario in the making."""

    def __init__(self, seed: int, family: str) -> None:
        self.dice = dice = Dice(seed, "pubsub", family)
        size = dice.pick([3, 4, 5, 5, 8, 8, 8, 12])
        self.brokers = [f"b{i}" for i in range(size)]
        self.parents = {f"b{i}": f"b{dice.below(i)}" for i in range(1, size)}
        topics = [f"t{i}" for i in range(1 + dice.below(3))]
        self.clients: dict[str, Raw] = {}
        for i in range(2 + dice.below(5)):
            member = dice.sample(topics, 1 + dice.below(len(topics)))
            self.clients[f"c{i}"] = {"edge": dice.pick(self.brokers), "topics": member}
        for topic in topics:  # Everything published has somebody to go to.
            self.clients["c0"]["topics"] = sorted({*self.clients["c0"]["topics"], topic})
        self.begin = 3000.0
        """By then the tree has formed and all members are in: nobody who alone knows of one may die before (10.5)."""
        self.duration = float(dice.pick([400, 800, 2000]))
        self.options: Raw = {
            "total_degree": dice.pick([2, 3, 3, 4, 16]),
            "order_scope": dice.pick(["key", "session"]),
            "partitions": "excluded",
            "retry_ms": dice.pick([60, 100, 300]),
            "stability_ms": dice.pick([20, 100, 500]),
            "member_timeout_ms": 30_000,
            "view_order": dice.pick(["ancestors-first", "hop-order", "score"]),
        }
        self.latency: Any = {"kind": "uniform", "low_ms": 1, "high_ms": dice.pick([5, 30, 60, 100])}
        self.detection: Any = {"kind": "uniform", "low_ms": 1, "high_ms": 50}
        self.silence: Any = {"kind": "uniform", "low_ms": 300, "high_ms": 2000}
        self.keys = dice.pick([1, 3, 10, 40])
        self.mix: Raw = dict(MIX)
        self.patient = seed % 2 == 1
        """Totals wait for members that are absent (`absent_member`)."""
        self.drain = 240_000.0
        self.links: list[Raw] = []
        self.late: Raw = {}
        """Processes that notice the death of others later or sooner than the rest."""
        self.faults: list[Raw] = []
        self.joins: list[str] = []

    # Faults

    def crash(self, victims: list[str], *, back: float = 0.0, state: str = "lost") -> None:
        """Brokers die all at once, shortly after each other, or spread over the run; a share of them comes back."""
        dice = self.dice
        window = dice.pick([0.0, 0.0, 200.0, 600.0, self.duration])
        first = self.moment()
        for victim in victims:
            at = first + dice.between(0, window)
            crash: Raw = {"kind": "crash", "node": victim, "at_ms": at, "survive": dice.pick(["all", "none", "random"])}
            if dice.chance(back):
                crash |= {"recover_ms": at + dice.between(1, dice.pick([5, 500, 6000])), "state": state}
            self.faults.append(crash)

    def moment(self) -> float:
        """A time at which much is going on."""
        return self.begin + self.dice.between(0, self.duration)

    def broker_crashes(self, **how: Any) -> None:
        """From none to all but one."""
        self.crash(self.dice.sample(self.brokers, self.dice.below(len(self.brokers))), **how)

    def minority(self) -> list[str]:
        return self.dice.sample(self.brokers, self.dice.below((len(self.brokers) - 1) // 2 + 1))

    def client_crashes(self, most: int, *, back: float = 0.0, state: str = "lost") -> None:
        victims = self.dice.sample([name for name in self.clients if name != "c0"], 1 + self.dice.below(most))
        for name in victims:
            at = self.moment()
            crash: Raw = {"kind": "crash", "node": name, "at_ms": at}
            if self.dice.chance(back):
                crash |= {"recover_ms": at + self.dice.between(1, 4000), "state": state}
            self.faults.append(crash)

    def everybody_but(self, *names: str) -> list[str]:
        return [name for name in (*self.brokers, *self.clients) if name not in names]

    def late_clients(self, count: int) -> None:
        for i in range(count):
            name = f"late{i}"
            topics = self.dice.sample(self.clients["c0"]["topics"], 2)
            self.clients[name] = {"edge": self.dice.pick(self.brokers), "topics": topics}
            self.joins.append(name)
            self.faults.append({"kind": "join", "node": name, "at_ms": self.moment()})

    def lasting(self, kind: str, longest: float, **more: Any) -> None:
        at = self.moment()
        self.faults.append({"kind": kind, "at_ms": at, "until_ms": at + self.dice.between(10, longest), **more})

    def scenario(self, seed: int, family: str) -> Scenario:
        ends = [fault.get(name, 0) for fault in self.faults for name in ("at_ms", "until_ms", "recover_ms")]
        operations = 8 + self.dice.below(24)
        interval = self.duration / operations
        common = {"keys": self.keys, "guarantee": self.mix, "payload_bytes": 8}
        common |= {"start_ms": self.begin - 100, "stop_ms": self.begin + self.duration}
        rate = 1000 * len(self.clients) / interval
        return parse_scenario(
            {
                "name": f"pubsub-swarm-{family}-{seed}",
                "protocol": "broker",
                "seed": seed,
                "duration_ms": max([self.begin + self.duration, *ends]) + 1,
                "drain_ms": self.drain,
                "options": self.options,
                "link": {"latency_ms": self.latency},
                "links": self.links,
                "overlay": {
                    "kind": "broker-tree",
                    "parents": self.parents,
                    "clients": self.clients,
                    "detection_ms": self.detection,
                    "detection": self.late,
                    "silence_ms": self.silence,
                },
                "workload": [
                    {"kind": "open", "rate_per_s": rate * 0.7, **common},
                    {"kind": "open", "rate_per_s": rate * 0.3, "keys_per_message": 2, **common},
                ],
                "fault": self.faults,
            }
        )


Family = Callable[[Draft], None]
FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    FAMILIES[function.__name__.replace("_", "-")] = function
    return function


@family
def calm(draft: Draft) -> None:
    """No faults."""


@family
def base(draft: Draft) -> None:
    draft.broker_crashes()


@family
def one_key(draft: Draft) -> None:
    draft.keys = 1
    draft.broker_crashes()


@family
def all_total(draft: Draft) -> None:
    draft.mix = {"total": 1.0}
    draft.broker_crashes()


@family
def wide(draft: Draft) -> None:
    draft.begin = 60_000.0  # A broker of twelve was not in the tree after 20 s, and alone was left.
    draft.latency = {"kind": "uniform", "low_ms": 1, "high_ms": 600}
    draft.options["member_timeout_ms"] = 120_000
    draft.broker_crashes()


@family
def slow_detection(draft: Draft) -> None:
    draft.detection = {"kind": "uniform", "low_ms": 100, "high_ms": 1500}
    draft.latency = {"kind": "uniform", "low_ms": 1, "high_ms": 30}
    draft.broker_crashes()


@family
def no_stability(draft: Draft) -> None:
    draft.options["stability_ms"] = 60_000
    draft.broker_crashes()


@family
def client_crash(draft: Draft) -> None:
    draft.broker_crashes()
    draft.client_crashes(2)


@family
def client_and_edge(draft: Draft) -> None:
    """A member disappears together with its broker."""
    victim = draft.dice.pick([name for name in draft.clients if name != "c0"])
    at = draft.moment()
    for node in (victim, draft.clients[victim]["edge"]):
        draft.faults.append({"kind": "crash", "node": node, "at_ms": at + draft.dice.between(0, 30)})


@family
def safe_publications(draft: Draft) -> None:
    """A publisher dies, and with it the one broker that passed on what it had been told is safe."""
    edge = draft.dice.pick([broker for broker in draft.brokers if broker != "b0"])
    elsewhere = [broker for broker in draft.brokers if broker != edge]
    for name in draft.clients:
        draft.clients[name]["edge"] = edge if name == "c1" else draft.dice.pick(elsewhere)
    at = draft.moment()
    draft.faults.append({"kind": "crash", "node": "c1", "at_ms": at})
    crash = {"kind": "crash", "node": draft.parents[edge], "at_ms": at + draft.dice.between(0, 40), "survive": "none"}
    draft.faults.append(crash)


@family
def restart(draft: Draft) -> None:
    draft.broker_crashes(back=0.7)


@family
def restart_with_disk(draft: Draft) -> None:
    draft.broker_crashes(back=0.8, state="kept")


@family
def restart_and_clients(draft: Draft) -> None:
    draft.broker_crashes(back=0.7)
    draft.client_crashes(2, back=0.5)


@family
def joins(draft: Draft) -> None:
    draft.broker_crashes()
    draft.late_clients(2)


@family
def joins_and_everything(draft: Draft) -> None:
    draft.broker_crashes(back=0.6)
    draft.late_clients(3)
    draft.client_crashes(1, back=0.5)


@family
def client_leaves(draft: Draft) -> None:
    draft.broker_crashes()
    for name in draft.dice.sample([name for name in draft.clients if name != "c0"], 1 + draft.dice.below(2)):
        draft.faults.append({"kind": "leave", "node": name, "at_ms": draft.moment()})


@family
def publish_only(draft: Draft) -> None:
    draft.clients["pub"] = {"edge": draft.dice.pick(draft.brokers), "publishes": draft.clients["c0"]["topics"]}
    draft.broker_crashes(back=0.3)


@family
def filters(draft: Draft) -> None:
    """Most follow filters, and publish on topics that are not there before; some are far away from their edges."""
    dice = draft.dice
    draft.latency = {"kind": "uniform", "low_ms": 1, "high_ms": dice.pick([2, 10, 100])}
    new = [f"new.{i}.{j}" for i in range(2) for j in range(1 + dice.below(2))]
    for name, client in draft.clients.items():
        following = name == "c0" or dice.chance(0.7)
        topics = [] if following else dice.sample(new, 1 + dice.below(2))
        writing = [topic for topic in dice.sample(new, 1 + dice.below(len(new))) if topic not in topics]
        draft.clients[name] = {"edge": client["edge"], "topics": topics, "publishes": writing}
        if following:
            draft.clients[name]["filters"] = dice.sample([">", "new.>", "new.*.0", "new.0.*"], 1 + dice.below(2))
        if dice.chance(0.5):
            draft.links.append({"between": [name, client["edge"]], "latency_ms": 100})
    draft.clients["c0"]["filters"] = ["new.>"]


@family
def filters_and_crashes(draft: Draft) -> None:
    """Topics begin while brokers die: followers are between two edges, or their edges have no root."""
    filters(draft)
    draft.broker_crashes(back=0.5, state=draft.dice.pick(["lost", "kept"]))


@family
def filters_and_cuts(draft: Draft) -> None:
    """The same with a majority that decides: followers are cut off, or away and back with what they kept."""
    _primary(draft)
    latency = draft.latency
    filters(draft)
    draft.latency = latency
    draft.crash(draft.minority(), back=0.5, state="kept")
    away = draft.dice.sample([name for name in draft.clients if name != "c0"], 1 + draft.dice.below(2))
    for name in away:
        if draft.dice.chance(0.5):
            draft.lasting("partition", 4000, sides=[[name], draft.everybody_but(name)])
        else:
            at = draft.moment()
            back = at + draft.dice.between(1, 4000)
            draft.faults.append({"kind": "crash", "node": name, "at_ms": at, "recover_ms": back, "state": "kept"})
    primary_cuts(draft)


@family
def broker_joins(draft: Draft) -> None:
    new = [f"b{len(draft.brokers) + i}" for i in range(1 + draft.dice.below(2))]
    draft.broker_crashes(back=0.3)
    for name in new:
        draft.parents[name] = draft.dice.pick(draft.brokers)
        draft.faults.append({"kind": "join", "node": name, "at_ms": draft.moment()})


@family
def broker_leaves(draft: Draft) -> None:
    names = draft.dice.sample(draft.brokers, len(draft.brokers) - 1)
    leaving = names[: 1 + draft.dice.below(2)]
    for name in leaving:
        draft.faults.append({"kind": "leave", "node": name, "at_ms": draft.moment()})
    draft.crash(names[len(leaving) : len(leaving) + draft.dice.below(2)])


def _primary(draft: Draft) -> None:
    draft.options |= {"partitions": "primary", "lease_ms": draft.dice.pick([1000, 3000])}
    draft.options["absent_member"] = "wait" if draft.patient else "cover"
    draft.latency["high_ms"] = min(draft.latency["high_ms"], 60)


@family
def primary(draft: Draft) -> None:
    _primary(draft)
    draft.crash(draft.minority(), back=0.5, state=draft.dice.pick(["lost", "kept"]))


@family
def primary_clients(draft: Draft) -> None:
    _primary(draft)
    draft.crash(draft.minority(), back=0.5, state="kept")
    draft.client_crashes(2, back=0.7, state=draft.dice.pick(["lost", "kept"]))


@family
def absent_through_elections(draft: Draft) -> None:
    """A client is gone for good while one root after the other dies: nobody waits for it much longer than promised."""
    _primary(draft)
    draft.mix = {"total": 1.0}
    draft.options["absent_member"] = "wait"
    gone = draft.begin + draft.dice.between(0, 100)
    draft.faults.append({"kind": "crash", "node": "c1", "at_ms": gone})
    at = gone
    for broker in ("b0", *draft.dice.sample(draft.brokers[1:], 1)):
        at += draft.dice.between(8000, 12_000)
        crash = {"kind": "crash", "node": broker, "at_ms": at, "recover_ms": at + 2000, "state": "kept"}
        draft.faults.append(crash)
    repair = draft.options["lease_ms"] + 10_000
    draft.drain = gone + draft.options["member_timeout_ms"] + repair - (at + 2000)


@family
def away(draft: Draft) -> None:
    """Clients break off again and again, crash or are cut off, and come back here or there while brokers die."""
    dice = draft.dice
    _primary(draft)
    draft.mix = {"eventual": 0.2, "causal": 0.3, "total": 0.5}
    for _ in range(2 + dice.below(4)):
        name = dice.pick([name for name in draft.clients if name != "c0"])
        at, back = draft.moment(), dice.between(1, 5000)
        match dice.below(3):
            case 0:
                draft.faults.append({"kind": "cut", "between": [name, draft.clients[name]["edge"]], "at_ms": at})
            case 1:
                draft.lasting("partition", 5000, sides=[[name], draft.everybody_but(name)])
            case _:
                crash = {"kind": "crash", "node": name, "at_ms": at, "recover_ms": at + back, "state": "kept"}
                if not any(fault["kind"] == "crash" and fault["node"] == name for fault in draft.faults):
                    draft.faults.append(crash)
    draft.crash(draft.minority(), back=0.5, state=dice.pick(["lost", "kept"]))
    draft.late_clients(dice.below(2))


@family
def nobody_waits_for_the_dead(draft: Draft) -> None:
    """Subscribers die for good while their brokers live: all that is published arrives long before they are fenced."""
    dice = draft.dice
    _primary(draft)
    draft.mix = {"total": 1.0}
    draft.options |= {"absent_member": "cover", "member_timeout_ms": 600_000}
    filters = {"edge": dice.pick(draft.brokers), "filters": [">"], "publishes": ["fresh"]}
    draft.clients["f"] = filters
    for name in dice.sample([name for name in draft.clients if name != "c0"], 1 + dice.below(3)):
        draft.faults.append({"kind": "crash", "node": name, "at_ms": draft.moment()})
    draft.drain = 30_000.0


@family
def nobody_waits_for_the_returned(draft: Draft) -> None:
    """As before, and they die for good just after they have come back, while brokers are about to confirm them anew."""
    nobody_waits_for_the_dead(draft)
    dice = draft.dice
    for death in [fault for fault in draft.faults if fault["kind"] == "crash"]:
        name, dies = death["node"], death["at_ms"]
        back = dies - dice.between(0, dice.pick([20, 300, 1000]))
        if dice.chance(0.5):
            draft.faults.append({"kind": "cut", "between": [name, draft.clients[name]["edge"]], "at_ms": back})
        else:
            gone: Raw = {"kind": "crash", "node": name, "at_ms": back - dice.between(10, 500)}
            draft.faults.append(gone | {"recover_ms": back, "state": "kept"})


@family
def fenced(draft: Draft) -> None:
    """Clients, some of which follow filters, are away for longer than anybody waits, with much in their outboxes.

    One keeps its state and is told on its return that its session is over, one is only cut off and goes on publishing.
    Most then go on with a new session, which answers for nothing that the old one published.
    """
    dice = draft.dice
    _primary(draft)
    draft.duration = 14_000.0
    draft.latency["high_ms"] = min(draft.latency["high_ms"], 30)
    draft.options |= {"lease_ms": 1000, "member_timeout_ms": 2000}
    for name in dice.sample([name for name in draft.clients if name != "c0"], 1 + dice.below(2)):
        client = draft.clients[name]
        if dice.chance(0.5):
            draft.clients[name] = {"edge": client["edge"], "filters": [">"], "publishes": client["topics"]}
        gone = draft.begin + dice.between(0, 3000)
        back = gone + dice.between(3500, 6000)
        if dice.chance(0.5):
            away: Raw = {"kind": "crash", "node": name, "recover_ms": back, "state": "kept"}
        else:
            away = {"kind": "partition", "sides": [[name], draft.everybody_but(name)], "until_ms": back}
        draft.faults.append({**away, "at_ms": gone})
        ended = back + dice.between(2500, 3500)
        if dice.chance(0.7):
            again = {"kind": "crash", "node": name, "at_ms": ended, "recover_ms": ended + dice.between(1, 100)}
            draft.faults.append({**again, "state": "lost"})


@family
def primary_cuts(draft: Draft) -> None:
    _primary(draft)
    everybody = [*draft.brokers, *draft.clients]
    for _ in range(1 + draft.dice.below(5)):
        between = draft.dice.sample(everybody, 2)
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})
    child = draft.dice.pick(list(draft.parents))
    between = [child, draft.parents[child]]
    draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})


@family
def primary_pauses(draft: Draft) -> None:
    _primary(draft)
    for name in draft.dice.sample([*draft.brokers, *draft.clients], 1 + draft.dice.below(2)):
        draft.lasting("pause", 8000, node=name)


@family
def primary_partitions(draft: Draft) -> None:
    _primary(draft)
    for _ in range(1 + draft.dice.below(2)):
        everybody = [*draft.brokers, *draft.clients]
        side = draft.dice.sample(everybody, 1 + draft.dice.below(len(everybody) - 1))
        draft.lasting("partition", 9000, sides=[side, draft.everybody_but(*side)])


@family
def primary_everything(draft: Draft) -> None:
    primary_partitions(draft)
    primary_cuts(draft)
    draft.crash(draft.minority(), back=0.5, state="kept")
    draft.late_clients(1)


@family
def uneven_links(draft: Draft) -> None:
    """Latencies that are all the same, differ with the direction or change in the middle, and some who notice late."""
    dice = draft.dice
    dice.pick([primary_everything, filters_and_cuts, filters_and_crashes, away, restart_and_clients, fenced])(draft)
    if dice.chance(0.5):
        draft.latency = dice.pick([1, 5, 5, 20])
    everybody = [*draft.brokers, *draft.clients]
    pairs = {frozenset(pair): pair for pair in [dice.sample(everybody, 2) for _ in range(dice.below(6))]}
    for one, other in pairs.values():
        uneven: Raw = {"between": [one, other], "latency_ms": dice.pick([0.1, 1, 30, 120]), "one_way": dice.chance(0.8)}
        if dice.chance(0.5):
            at = draft.moment()
            uneven |= {"kind": "delay", "at_ms": at}
            draft.faults.append(uneven | ({"until_ms": at + dice.between(10, 3000)} if dice.chance(0.5) else {}))
        else:
            draft.links.append(uneven)
    draft.late = {name: dice.pick([1, 5, 300, 800]) for name in dice.sample(everybody, dice.below(4))}


@family
def sealed(draft: Draft) -> None:
    """Brokers that share a secret and lose all they know: what clients remember is believed, because it is sealed."""
    draft.broker_crashes(back=0.7, state=draft.dice.pick(["lost", "kept"]))
    draft.client_crashes(1, back=0.8, state=draft.dice.pick(["lost", "kept"]))
    draft.late_clients(1)


@family
def liar(draft: Draft) -> None:
    """One client lies about everything while brokers come and go; the others must not notice."""
    topics = draft.clients["c0"]["topics"]
    draft.clients[LIAR] = {"edge": draft.dice.pick(draft.brokers), "topics": topics}
    draft.broker_crashes(back=0.5)
    draft.faults.append({"kind": "crash", "node": LIAR, "at_ms": draft.begin + draft.duration + 500})


def _short_sessions(draft: Draft) -> None:
    """Clients that come, publish and go, some without a word, while the root folds what they leave behind."""
    dice = draft.dice
    draft.duration = dice.pick([4000.0, 8000.0])
    draft.latency["high_ms"] = min(draft.latency["high_ms"], 30)
    draft.options |= {
        "fold_ms": dice.pick([30, 100, 400]), "member_timeout_ms": dice.pick([1500, 2500]), "lease_ms": 1000,
        "stability_ms": dice.pick([20, 100]), "retry_ms": 60, "request_ms": 400,
    }  # fmt: skip
    topics = draft.clients["c0"]["topics"]
    for i in range(3 + dice.below(5)):
        name = f"s{i}"
        kind = dice.pick(["topics", "publishes", "publishes"])
        draft.clients[name] = {"edge": dice.pick(draft.brokers), kind: dice.sample(topics, 1 + dice.below(2))}
        draft.joins.append(name)
        at = draft.begin + dice.between(0, draft.duration * 0.7)
        draft.faults.append({"kind": "join", "node": name, "at_ms": at})
        end = at + dice.between(20, draft.duration * 0.3)
        if dice.chance(0.7):
            draft.faults.append({"kind": "leave", "node": name, "at_ms": end})
        else:
            crash: Raw = {"kind": "crash", "node": name, "at_ms": end}
            if dice.chance(0.6):
                crash |= {"recover_ms": end + dice.between(1, 5000), "state": dice.pick(["kept", "lost"])}
            draft.faults.append(crash)


@family
def short_sessions(draft: Draft) -> None:
    """Brokers go and come back, with their disks or without, while sessions are folded."""
    if draft.dice.chance(0.6):
        _primary(draft)
        draft.crash(draft.minority(), back=0.8, state=draft.dice.pick(["lost", "kept"]))
    else:
        draft.broker_crashes(back=0.8, state=draft.dice.pick(["lost", "kept"]))
    _short_sessions(draft)


@family
def short_sessions_late(draft: Draft) -> None:
    """Brokers and durable clients that were away for long bring back what they had of folded sessions."""
    dice = draft.dice
    _primary(draft)
    _short_sessions(draft)
    for name in dice.sample(draft.brokers, 1 + dice.below((len(draft.brokers) - 1) // 2)):
        at = draft.begin + dice.between(0, draft.duration * 0.3)
        back = at + dice.between(200, draft.duration * 0.6)
        crash: Raw = {"kind": "crash", "node": name, "at_ms": at, "survive": dice.pick(["all", "none", "random"])}
        draft.faults.append(crash | {"recover_ms": back, "state": "kept"})
    for name in dice.sample([name for name in draft.clients if name[0] == "c" and name != "c0"], 1 + dice.below(2)):
        for _ in range(1 + dice.below(3)):
            at = draft.moment()
            crash = {"kind": "crash", "node": name, "at_ms": at, "recover_ms": at + dice.between(1, 1400)}
            draft.faults.append(crash | {"state": "kept"})


@family
def short_sessions_cut(draft: Draft) -> None:
    """Parts of the tree are cut off with what they have of sessions that the others fold; roots change mid-round."""
    _primary(draft)
    _short_sessions(draft)
    for _ in range(1 + draft.dice.below(3)):
        side = draft.dice.sample(draft.brokers, 1 + draft.dice.below((len(draft.brokers) - 1) // 2))
        side += draft.dice.sample([name for name in draft.clients if name[0] == "s"], draft.dice.below(3))
        draft.lasting("partition", 4000, sides=[side, draft.everybody_but(*side)])
    for _ in range(draft.dice.below(4)):
        child = draft.dice.pick(list(draft.parents))
        draft.faults.append({"kind": "cut", "between": [child, draft.parents[child]], "at_ms": draft.moment()})


@family
def short_sessions_apart(draft: Draft) -> None:
    """Two brokers are cut off with what nobody else has of sessions that are given up, and come back with it."""
    dice = draft.dice
    _primary(draft)
    draft.duration = 600.0
    draft.brokers = [f"b{i}" for i in range(5)]
    draft.parents = {"b1": "b0", "b2": "b0", "b3": "b0", "b4": "b3"}
    draft.latency = {"kind": "uniform", "low_ms": 1, "high_ms": 10}
    draft.links.append({"between": ["b3", "b0"], "latency_ms": 80})
    draft.options |= {
        "fold_ms": 20, "member_timeout_ms": 1500, "lease_ms": 1000, "stability_ms": 20, "retry_ms": 60,
        "request_ms": 1000, "total_degree": 16,
    }  # fmt: skip
    for client in draft.clients.values():
        client["edge"] = dice.pick(["b0", "b1", "b2"])
    sessions = [f"s{i}" for i in range(4)]
    draft.clients |= {name: {"edge": "b4", "publishes": draft.clients["c0"]["topics"]} for name in sessions}
    at = draft.begin + dice.between(200, 500)
    side = ["b3", "b4", *sessions]
    sides, back = [side, draft.everybody_but(*side)], at + dice.between(2500, 4500)
    draft.faults.append({"kind": "cut", "between": ["b3", "b0"], "at_ms": at})
    draft.faults.append({"kind": "partition", "at_ms": at, "until_ms": back, "sides": sides})
    draft.faults += [{"kind": "crash", "node": name, "at_ms": at + dice.between(10, 200)} for name in sessions]


@family
def short_sessions_alone(draft: Draft) -> None:
    """A reader that is away alone has what sessions published that are replaced at once: its brokers have forgotten."""
    dice = draft.dice
    short_sessions_apart(draft)
    at, sessions = draft.faults[0]["at_ms"], [name for name in draft.clients if name[0] == "s"]
    draft.options |= {"member_timeout_ms": 8000, "safe_copies": 3}
    draft.clients["far"] = {"edge": "b4", "topics": draft.clients["c0"]["topics"]}
    sides = [["far"], draft.everybody_but("far")]
    draft.faults = [{"kind": "partition", "at_ms": at, "until_ms": at + dice.between(2500, 4500), "sides": sides}]
    for name in ("b3", "b4"):
        lost: Raw = {"kind": "crash", "node": name, "at_ms": at, "survive": "none", "state": "lost"}
        draft.faults.append(lost | {"recover_ms": at + dice.between(20, 100)})
    for name in sessions:
        lost = {"kind": "crash", "node": name, "at_ms": at, "state": "lost"}
        draft.faults.append(lost | {"recover_ms": at + dice.between(5, 100)})


FOLDED = ("short-sessions", "short-sessions-late", "short-sessions-cut", "short-sessions-apart", "short-sessions-alone")
MACHINES = {"sealed": SEALED, "liar": WITH_LIAR, **dict.fromkeys(FOLDED, FOLDING)}
"""Of the families that need others than usual."""


def family_of(seed: int, name: str | None) -> str:
    names = list(FAMILIES)
    return name or names[seed % len(names)]


def swarm_scenario(seed: int, name: str | None = None) -> Scenario:
    """The scenario that belongs to the seed; without a family, seeds take the families in turn."""
    chosen = family_of(seed, name)
    draft = Draft(seed, chosen)
    FAMILIES[chosen](draft)
    return draft.scenario(seed, chosen)


def try_seed(
    seed: int, name: str | None = None, parts: Parts | None = None, drain_ms: float | None = None
) -> Finding | str:  # fmt: skip
    """What the run found, or the broken promise that ended it."""
    scenario = swarm_scenario(seed, name)
    if drain_ms is not None:
        scenario = msgspec.structs.replace(scenario, drain_ms=drain_ms)
    try:
        chosen = family_of(seed, name)
        return run_pubsub(scenario, seed, parts or MACHINES.get(chosen), folds=chosen in FOLDED)
    except Exception as error:  # noqa: BLE001 - a bug of that seed; the other seeds are still to run
        return f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"


def problems_of(scenario: Scenario, parts: Parts | None = None) -> list[str]:
    """Everything wrong with a run of the scenario under its own seed."""
    try:
        return run_pubsub(scenario, None, parts, folds=scenario.name.startswith("pubsub-swarm-short")).problems
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001
        return [f"{type(error).__name__}: {error}"]


def fails_alike(scenario: Scenario, problem: str, parts: Parts | None = None) -> bool:
    """Whether the run has a problem of the same kind: the same check, or any broken promise."""
    return any(
        found.split(":")[0][:9] == problem.split(":", maxsplit=1)[0][:9] for found in problems_of(scenario, parts)
    )


def main() -> int:
    """Run seeds; 0 if none fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only these (default: in turn)")
    parser.add_argument("--all", action="store_true", help="every family with every seed")
    parser.add_argument("--lying-broker", action="store_true", help="one broker lies: says what that breaks")
    parser.add_argument("--one-by-one", action="store_true", help="portions of one topic each (BRK-L7)")
    parser.add_argument("--stop", action="store_true", help="end at the first failure")
    parser.add_argument("--shrink", action="store_true", help="make the scenario of a failing seed small")
    parser.add_argument("--quiet", action="store_true", help="no scenario of a failing seed")
    arguments = parser.parse_args()
    if arguments.one_by_one:
        Topics.portion = 1
    if arguments.lying_broker:
        return what_a_lying_broker_breaks(range(arguments.first, arguments.first + arguments.seeds))
    names: list[str | None] = list(FAMILIES) if arguments.all else arguments.family or [None]
    failed = events = deliveries = 0
    started = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name in names:
            finding = try_seed(seed, name)
            problems = [finding] if isinstance(finding, str) else finding.problems
            if not isinstance(finding, str):
                events += finding.events
                deliveries += sum(client.delivered for client in finding.world.clients.values())
            if problems:
                failed += 1
                report(seed, name, problems, quiet=arguments.quiet)
                if arguments.shrink:
                    parts = MACHINES.get(family_of(seed, name))
                    alike = partial(fails_alike, problem=problems[0], parts=parts)
                    small = shrink(swarm_scenario(seed, name), BROKER, alike, seed=seed)
                    print(f"# small: {problems_of(small, parts)}\n{dump_scenario(small)}", flush=True)
                if arguments.stop:
                    return 1
    spent = time.monotonic() - started
    runs = arguments.seeds * len(names)
    print(
        f"broker: {runs} runs, {failed} failed, {deliveries} deliveries judged, {events} events, {spent:.1f} s",
        flush=True,
    )
    return 1 if failed else 0


def what_a_lying_broker_breaks(seeds: range) -> int:
    """Nobody promises anything then, except that the honest ones go on: only their own broken invariants count."""
    broken: Counter[str] = Counter()
    for seed in seeds:
        finding = try_seed(seed, "calm", WITH_LYING_BROKER)
        problems = [finding] if isinstance(finding, str) else finding.problems
        broken.update({problem.split(":")[0].split(" ")[0] for problem in problems} or {"nothing"})
    for what, runs in broken.most_common():
        print(f"{runs:5} of {len(seeds)} runs: {what}")
    return 1 if broken["InvariantError"] else 0


def report(seed: int, name: str | None, problems: list[str], *, quiet: bool = False) -> None:
    scenario = swarm_scenario(seed, name)
    print(f"\n{scenario.name}:")
    for problem in problems[:4]:
        print(f"  {problem}")
    if not quiet:
        print(dump_scenario(scenario))
    chosen = f" --family {name}" if name else ""
    print(f"again: python -m tests.properties.pubsub_swarm --seeds 1 --first {seed}{chosen}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
