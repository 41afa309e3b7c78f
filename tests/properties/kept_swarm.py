"""A swarm of small random broker systems with kept topics: late readers, crashes, lost and damaged disks.

    python -m tests.properties.kept_swarm --seeds 500 --family crashes

The judge sees every copy of every archive as one more subscriber, and history and live of late readers as one view.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from ordercast.core.ids import NodeId, Topic
from ordercast.pubsub.keeping import ranked
from ordercast.scenario.brokers import BrokerTree, KeptTopic
from ordercast.scenario.load import dump_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.pubsub.parts import Parts
from tests.properties.pubsub_swarm import Draft, _primary, _short_sessions
from tests.support.kept_lab import copies_of, is_whole, run_kept
from tests.support.pubsub_folding import FOLDING
from tests.support.pubsub_lab import Finding

FAMILIES: dict[str, Callable[[Draft], None]] = {}
LOSES_NOTHING = {"calm", "cuts", "one-of-two", "across-calm", "folded"}
"""In all others brokers that keep totals crash, or more disks are lost than there are copies less one: readers may be
told that something is gone (ARC-6, ARC-10). What they do get is judged all the same."""
MORE: dict[str, dict[str, Any]] = {"cleaned": {"max_age_ms": 1500.0}, "compacted": {"compact": "key"}}
MORE["folded-cleaned"] = MORE["cleaned"]


def family(function: Callable[[Draft], None]) -> Callable[[Draft], None]:
    FAMILIES[function.__name__.replace("_", "-")] = function
    return function


def _late_readers(draft: Draft, count: int) -> None:
    draft.late_clients(count)
    for name in draft.joins:
        draft.clients[name]["start"] = "earliest"


@family
def calm(draft: Draft) -> None:
    """No faults but late readers."""
    _late_readers(draft, 3)


@family
def crashes(draft: Draft) -> None:
    """Brokers crash, and most come back with their disks."""
    draft.broker_crashes(back=0.7, state="kept")
    _late_readers(draft, 3)


@family
def lost_disks(draft: Draft) -> None:
    """Brokers come back with nothing and fill their archives from others."""
    draft.broker_crashes(back=0.7, state="lost")
    _late_readers(draft, 3)


@family
def primary(draft: Draft) -> None:
    _primary(draft)
    draft.crash(draft.minority(), back=0.8, state=draft.dice.pick(["lost", "kept"]))
    _late_readers(draft, 3)


@family
def readers_crash(draft: Draft) -> None:
    """Readers die in the middle of the past and go on from where they were."""
    _primary(draft)
    draft.crash(draft.minority(), back=0.8, state="kept")
    _late_readers(draft, 3)
    for fault in list(draft.faults):
        if fault["kind"] == "join":
            at = fault["at_ms"] + draft.dice.between(1, 400)
            back = at + draft.dice.between(1, 500)
            state = draft.dice.pick(["kept", "lost"])
            crash = {"kind": "crash", "node": fault["node"], "at_ms": at, "recover_ms": back, "state": state}
            draft.faults.append(crash)


@family
def cuts(draft: Draft) -> None:
    """Connections to copies break while they are read."""
    _primary(draft)
    _late_readers(draft, 3)
    for _ in range(6):
        between = [draft.dice.pick(draft.joins), draft.dice.pick(draft.brokers)]
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})


@family
def filters(draft: Draft) -> None:
    """Late readers follow filters from the beginning, while topics begin and brokers crash."""
    _primary(draft)
    dice = draft.dice
    names = ["new.0", "new.1", "old.0"]
    for name, client in draft.clients.items():
        client["topics"] = names if name == "c0" else dice.sample(names, 1 + dice.below(2))
    draft.crash(draft.minority()[:1], back=1.0, state="kept")
    draft.late_clients(3)
    for name in draft.joins:
        draft.clients[name] = {
            "edge": dice.pick(draft.brokers), "filters": [dice.pick([">", "new.*", "old.>"])], "start": "earliest",
        }  # fmt: skip


@family
def few_copies(draft: Draft) -> None:
    """Two copies, and any brokers crash; all come back, or readers would wait for them."""
    draft.broker_crashes(back=1.0, state="kept")
    _late_readers(draft, 2)


@family
def one_of_two(draft: Draft) -> None:
    """Two copies, no totals, and one broker crashes, with its disk or without, for good or not: nothing is lost."""
    draft.mix = {"eventual": 0.3, "fifo": 0.2, "causal": 0.5}
    draft.parents = dict.fromkeys(draft.brokers[1:], "b0")  # Or one crash could cut both copies off.
    if draft.dice.chance(0.5):
        _primary(draft)
    draft.crash([draft.dice.pick(draft.brokers)], back=0.7, state=draft.dice.pick(["lost", "kept"]))
    _late_readers(draft, 2)


@family
def above_both(draft: Draft) -> None:
    """Two copies that hang through one broker, which crashes, for good or not; another one may crash with it."""
    _primary(draft)
    names = [NodeId(f"b{i}") for i in range(5)]
    draft.brokers = [*names]
    for client in draft.clients.values():
        client["edge"] = draft.dice.pick(draft.brokers)
    copies = ranked(Topic("t0"), names)[:2]
    root, between, other = (name for name in names if name not in copies)
    draft.parents = {between: root, other: root, copies[0]: between, copies[1]: between}
    draft.crash([between, draft.dice.pick([root, *copies])], back=0.8, state="kept")
    _late_readers(draft, 2)


@family
def damage(draft: Draft) -> None:
    """Records of archives go bad on the disk, brokers restart."""
    draft.crash(draft.minority(), back=1.0, state="kept")
    _late_readers(draft, 3)


@family
def cleaned(draft: Draft) -> None:
    """What is older than a moment is removed, while it is read."""
    draft.crash(draft.minority(), back=1.0, state="kept")
    _late_readers(draft, 3)


@family
def compacted(draft: Draft) -> None:
    """Of each key only the last message stays."""
    draft.crash(draft.minority(), back=1.0, state="kept")
    _late_readers(draft, 3)
    for name in draft.joins[1:]:
        draft.clients[name]["start"] = "last-of-each-key"


def _several_topics(draft: Draft) -> None:
    topics = ["q", "r", "s"]
    for name, client in draft.clients.items():
        client["topics"] = topics if name == "c0" else draft.dice.sample(topics, 2)
    draft.duration = 2000.0


@family
def across(draft: Draft) -> None:
    """Cuts across topics while connections and links break and brokers crash: no answer without its question."""
    _several_topics(draft)
    _primary(draft)
    for _ in range(draft.dice.below(4)):
        between = draft.dice.sample([*draft.brokers, *draft.clients], 2)
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})
    draft.crash(draft.minority()[:1], back=1.0, state=draft.dice.pick(["lost", "kept"]))
    if draft.dice.chance(0.5):
        draft.client_crashes(1, back=0.7, state="kept")


@family
def across_calm(draft: Draft) -> None:
    """The same without faults."""
    _several_topics(draft)
    _primary(draft)


@family
def across_new_topics(draft: Draft) -> None:
    """Cuts across all topics of a filter, while topics begin, of which some follow all, and links break."""
    _several_topics(draft)
    _primary(draft)
    dice = draft.dice
    draft.late_clients(4)
    for i, name in enumerate(draft.joins):
        draft.clients[name] |= {"topics": [f"new.{i}", "q"]}
        draft.clients[name].pop("start", None)
    draft.clients["c1"] |= {"filters": [">"]}
    if dice.chance(0.5):
        between = dice.sample([*draft.brokers, *draft.clients], 2)
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})


def _folding_readers(draft: Draft) -> None:
    """Short sessions on few topics, and readers that come late, some of them for long enough to see them folded."""
    _short_sessions(draft)
    for client in draft.clients.values():
        client.pop("start", None)
    for i in range(3):
        name = f"late{i}"
        draft.clients[name] = {
            "edge": draft.dice.pick(draft.brokers), "topics": draft.clients["c0"]["topics"], "start": "earliest",
        }  # fmt: skip
        at = draft.begin + draft.dice.between(0, draft.duration * 1.2)
        draft.faults.append({"kind": "join", "node": name, "at_ms": at})
        draft.joins.append(name)


@family
def folded(draft: Draft) -> None:
    """Short sessions come, go and are folded, while readers begin in the past; nothing else happens."""
    _primary(draft)
    _folding_readers(draft)


@family
def folded_crashes(draft: Draft) -> None:
    """The same, while brokers crash, and come back with their disks or without."""
    _primary(draft)
    draft.crash(draft.minority(), back=0.9, state=draft.dice.pick(["lost", "kept"]))
    _folding_readers(draft)


@family
def folded_late(draft: Draft) -> None:
    """Brokers are away while sessions end, and find them folded, with holes to fill; readers go on at other copies."""
    dice = draft.dice
    _primary(draft)
    _folding_readers(draft)
    for name in dice.sample(draft.brokers, 1 + dice.below((len(draft.brokers) - 1) // 2)):
        for _ in range(1 + dice.below(3)):
            at = draft.begin + dice.between(0, draft.duration * 0.8)
            crash = {"kind": "crash", "node": name, "at_ms": at, "survive": dice.pick(["all", "none", "random"])}
            crash |= {"recover_ms": at + dice.between(100, 1500), "state": dice.pick(["kept", "lost"])}
            draft.faults.append(crash)
    for name in [name for name in draft.joins if name.startswith("late")]:
        if dice.chance(0.5):
            at = draft.moment()
            crash = {"kind": "crash", "node": name, "at_ms": at, "state": "kept"}
            draft.faults.append(crash | {"recover_ms": at + dice.between(1, 3000)})


@family
def folded_cut(draft: Draft) -> None:
    """Parts of the tree are cut off while the others fold, and roots change in the middle of a round."""
    _primary(draft)
    _folding_readers(draft)
    for _ in range(1 + draft.dice.below(3)):
        side = draft.dice.sample(draft.brokers, 1 + draft.dice.below((len(draft.brokers) - 1) // 2))
        draft.lasting("partition", 4000, sides=[side, draft.everybody_but(*side)])
    for _ in range(draft.dice.below(4)):
        child = draft.dice.pick(list(draft.parents))
        draft.faults.append({"kind": "cut", "between": [child, draft.parents[child]], "at_ms": draft.moment()})


@family
def folded_damage(draft: Draft) -> None:
    """Records of archives go bad while sessions are folded, brokers restart."""
    folded_crashes(draft)


@family
def folded_cleaned(draft: Draft) -> None:
    """What is older than a moment is removed, of folded sessions too."""
    folded_crashes(draft)


def swarm_scenario(seed: int, name: str) -> Scenario:
    draft = Draft(seed, f"kept-{name}")
    draft.options["order_scope"] = "session"
    draft.options["member_timeout_ms"] = 30_000
    FAMILIES[name](draft)
    scenario = draft.scenario(seed, name)
    copies = 2 if name in ("few-copies", "one-of-two", "above-both", "folded-late") else len(draft.brokers)
    assert isinstance(scenario.overlay, BrokerTree)
    kept = KeptTopic(filter=">", copies=copies, **MORE.get(name, {}))
    overlay = msgspec.structs.replace(scenario.overlay, keep=[kept])
    return msgspec.structs.replace(scenario, overlay=overlay)


def try_seed(seed: int, name: str, parts: Parts | None = None) -> Finding | str:
    """The finding; or, where the machines failed, what they said."""
    try:
        return run_kept(
            swarm_scenario(seed, name),
            parts or (FOLDING if name.startswith("folded") else None),
            may_lose=name not in LOSES_NOTHING,
            damaged=name in ("damage", "folded-damage"),
            across=name.startswith("across"),
            folds=name.startswith("folded"),
        )
    except Exception:  # noqa: BLE001 - Whatever it is, it is a finding.
        return traceback.format_exc()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--family", choices=[*FAMILIES, "all"], default="all")
    parser.add_argument("--show", action="store_true", help="print the scenario of a failing seed")
    options = parser.parse_args(argv)
    failed: Counter[str] = Counter()
    for name in FAMILIES if options.family == "all" else [options.family]:
        deliveries = lost = 0
        for seed in range(options.first, options.first + options.seeds):
            finding = try_seed(seed, name)
            problems: Any = [finding] if isinstance(finding, str) else finding.problems
            if not isinstance(finding, str):
                deliveries += sum(client.delivered for client in finding.world.clients.values())
                lost += sum(not is_whole(archive) for _, _, archive in copies_of(finding.world))
            if problems:
                failed[name] += 1
                print(f"{name} seed {seed}: " + "\n   ".join(problems))
                if options.show:
                    print(dump_scenario(swarm_scenario(seed, name)))
        print(f"{name}: {options.seeds} seeds, {deliveries} deliveries, {lost} copies not whole, {failed[name]} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
