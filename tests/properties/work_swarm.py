"""A swarm of groups at work on small random broker systems: members die at every step while brokers crash.

    python -m tests.properties.work_swarm --seeds 1000

Members and leaders are the client library itself, in the simulator. They are killed at random moments and at random
packets, started again under their names, stopped for longer than anybody waits, and leave; brokers crash and come back,
links and connections break. Judged: nothing lost, no key reordered or at two members at once, nothing done twice beyond
what is promised (docs/protocols/shared-work.md).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable

import msgspec

from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.words import group_topic
from ordercast.core.ids import NodeId
from ordercast.pubsub.keeping import ranked
from ordercast.scenario.brokers import BrokerTree, KeptTopic
from ordercast.scenario.load import dump_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import ns
from tests.properties.pubsub_swarm import Draft, _primary
from tests.support.work_stage import FILTER_TOPICS, GROUP, SETTINGS, TOPIC, WorkStage

FAMILIES: dict[str, Callable[[Draft], None]] = {}
MEMBERS = ("m0", "m1", "m2")
LEADER = "whoever leads"
_HANGS_MS = 1000
_GAPS = ("gaps", "above")
"""Families in which no copy of what the group writes down is in the tree for a while."""
_BEFORE_MS = 600.0
_PATIENCE_MS = 120_000.0
_STILL_MS = 1600.0
"""Longer than anybody waits for an answer, shorter than `silent_ms`: who leads goes on leading."""
Trouble = tuple[float, str, str, int, str]
"""When, what, to whom; and a number and a role for those that need them."""


def family(function: Callable[[Draft], None]) -> Callable[[Draft], None]:
    FAMILIES[function.__name__.replace("_", "-")] = function
    return function


@family
def members(draft: Draft) -> None:
    """Only members and leaders are in trouble."""


@family
def leaders(draft: Draft) -> None:
    """Whoever leads is killed or stands still, again and again."""


@family
def usurpers(draft: Draft) -> None:
    """Members that have not heard of the leader, who is well, take over from it while brokers crash."""
    draft.crash(draft.minority(), back=1.0, state="kept")


@family
def brokers(draft: Draft) -> None:
    """Brokers crash too, and most come back with their disks."""
    draft.crash(draft.minority(), back=0.8, state="kept")


@family
def connections(draft: Draft) -> None:
    """Links between brokers break, and come back."""
    for _ in range(3):
        between = draft.dice.sample(draft.brokers, 2)
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})
    draft.crash(draft.minority()[:1], back=1.0, state="kept")


@family
def filters(draft: Draft) -> None:
    """The group shares the topics of a filter, one member only one of them; brokers crash too."""
    draft.crash(draft.minority()[:1], back=1.0, state="kept")


@family
def copies(draft: Draft) -> None:
    """Two brokers keep the topics; one broker crashes, links break, and members stand still while they read."""
    draft.parents = dict.fromkeys(draft.brokers[1:], "b0")  # Or one crash could cut both copies off.
    draft.crash([draft.dice.pick(draft.brokers)], back=1.0, state="kept")
    for _ in range(2):
        between = ["b0", draft.dice.pick(draft.brokers[1:])]
        draft.faults.append({"kind": "cut", "between": between, "at_ms": draft.moment()})


@family
def gaps(draft: Draft) -> None:
    """Both copies of what the group writes down are away at once, twice, and whoever leads dies meanwhile (SHW-13)."""
    draft.brokers = [f"b{i}" for i in range(5)]
    draft.parents = {f"b{i}": f"b{draft.dice.below(i)}" for i in range(1, 5)}
    for at in (draft.begin + draft.dice.between(0, 600), draft.begin + draft.dice.between(2400, 3000)):
        length = draft.dice.between(100, 1500)
        for copy in ranked(group_topic(TOPIC, GROUP), [NodeId(broker) for broker in draft.brokers])[:2]:
            late = draft.dice.between(0, draft.dice.pick([1, 100]))
            crash = {"kind": "crash", "node": copy, "at_ms": at + late, "recover_ms": at + late + length}
            draft.faults.append(crash | {"survive": draft.dice.pick(["all", "none", "random"]), "state": "kept"})


@family
def above(draft: Draft) -> None:
    """The broker crashes through which both copies of what the group writes down hang, and whoever leads dies."""
    names = [NodeId(f"b{i}") for i in range(5)]
    draft.brokers = [*names]
    copies = ranked(group_topic(TOPIC, GROUP), names)[:2]
    root, between, other = (name for name in names if name not in copies)
    draft.parents = {between: root, other: root, copies[0]: between, copies[1]: between}
    draft.options["view_order"] = "ancestors-first"
    for at in (draft.begin + draft.dice.between(0, 600), draft.begin + draft.dice.between(2400, 3000)):
        crash = {"kind": "crash", "node": between, "at_ms": at, "recover_ms": at + draft.dice.between(100, 1500)}
        draft.faults.append(crash | {"survive": draft.dice.pick(["all", "none", "random"]), "state": "kept"})


@family
def hangs(draft: Draft) -> None:
    """Applications hang with some of their units (SHW-14), while members die and a broker crashes."""
    draft.crash(draft.minority()[:1], back=1.0, state="kept")


def topics_of(name: str) -> tuple[str, ...]:
    return FILTER_TOPICS if name == "filters" else (TOPIC,)


def draft_of(seed: int, name: str) -> Draft:
    draft = Draft(seed, f"work-{name}")
    draft.options["order_scope"] = "session"
    draft.options["member_timeout_ms"] = 20_000
    draft.brokers = draft.brokers[: 3 + seed % 3]
    draft.parents = {child: parent for child, parent in draft.parents.items() if child in draft.brokers}
    draft.latency["high_ms"] = min(draft.latency["high_ms"], 30)
    draft.options["stability_ms"] = 20
    draft.duration = 3000.0
    _primary(draft)
    publishers = dict(list(draft.clients.items())[:3])
    draft.clients = {who: {"edge": draft.dice.pick(draft.brokers), "topics": [*topics_of(name)]} for who in publishers}
    draft.clients["undertaker"] = {"edge": draft.dice.pick(draft.brokers), "filters": ["dead.>"]}
    draft.keys = draft.dice.pick([1, 3, 10])
    FAMILIES[name](draft)
    return draft


def swarm_scenario(seed: int, name: str) -> Scenario:
    draft = draft_of(seed, name)
    scenario = draft.scenario(seed, name)
    assert isinstance(scenario.overlay, BrokerTree)
    count = 2 if name == "copies" else len(draft.brokers)
    kept = [
        KeptTopic(filter="groups.>", copies=2 if name in _GAPS else count, compact="key"),
        *(KeptTopic(filter=topic, copies=count) for topic in topics_of(name)),
    ]
    overlay = msgspec.structs.replace(scenario.overlay, keep=kept)
    return msgspec.structs.replace(scenario, name=f"work-swarm-{name}-{seed}", overlay=overlay)


def troubles(seed: int, name: str) -> list[Trouble]:
    """What happens to the members; drawn apart from the scenario, so that each can be looked at alone."""
    draft = draft_of(seed, name)
    dice = draft.dice
    found: list[Trouble] = []
    if name == "leaders":
        for _ in range(4):
            kind = dice.pick(["kill", "stand-still"])
            found.append((draft.moment(), kind, LEADER, int(dice.between(2500, 4000)), ""))
    elif name == "usurpers":
        found = [(draft.moment(), "usurp", who, 0, "") for who in MEMBERS for _ in range(3)]
    elif name == "copies":
        for who in MEMBERS:
            found += [(draft.moment(), "still-at-packet", who, 1 + dice.below(40), "leader") for _ in range(2)]
            found.append((draft.moment(), "kill", who, 0, ""))
    elif name in _GAPS:
        together = 2 if name == "gaps" else 1
        for first, second in zip(draft.faults[::together], draft.faults[together - 1 :: together], strict=True):
            last, back = max(first["at_ms"], second["at_ms"]), min(first["recover_ms"], second["recover_ms"])
            kind = dice.pick(["kill", "kill", "stand-still"])
            found.append((dice.between(last, max(last, back)), kind, LEADER, int(dice.between(2500, 4000)), ""))
    if found:
        return sorted([*found, *((draft.moment(), "start", who, 0, "") for who in MEMBERS)])
    for _ in range(2 + dice.below(6)):
        who, at = dice.pick(list(MEMBERS)), draft.moment()
        match dice.below(6):
            case 0:
                found.append((at, "kill", who, 0, ""))
            case 1 | 2:
                role = dice.pick(["leader", "leader", "member"])
                found.append((at, "kill-at-packet", who, 1 + dice.below(25), role))
            case 3:
                found.append((at, "stand-still", who, int(dice.between(500, 5000)), ""))
            case 4:
                found.append((at, "leave", who, 0, ""))
            case _:
                found.append((at, "start", f"new{len(found)}", 0, ""))
        found.append((at + dice.between(1, dice.pick([50, 4000])), "start", who, 0, ""))
    return sorted(found)


def run_group(seed: int, name: str, settings: WorkSettings = SETTINGS) -> WorkStage:
    """One run, judged by `problems()` of what it returns."""
    scenario = swarm_scenario(seed, name)
    settings = msgspec.structs.replace(settings, in_hand_ms=_HANGS_MS) if name == "hangs" else settings
    stage = WorkStage(scenario, settings, topics_of(name))
    begin = 3000.0 - _BEFORE_MS
    for i, member in enumerate(MEMBERS[: 3 if name in ("leaders", "usurpers", "copies", *_GAPS) else 1 + seed % 3]):
        stage.world.clock.at(ns(begin + 100 * i), lambda who, _: stage.start(who), member)
    if name in _GAPS:
        stage.world.clock.at(ns(begin), lambda *_: stage.watch_copies())
    for trouble in troubles(seed, name):
        stage.world.clock.at(ns(trouble[0]), lambda what, _: strike(stage, what), trouble)
    end = scenario.duration_ms + 5000
    stage.world.clock.at(ns(end), lambda *_: stage.start("last"))
    try:
        stage.live(end + 1, _PATIENCE_MS)
    finally:
        stage.end()
    return stage


def strike(stage: WorkStage, trouble: Trouble) -> None:
    _, kind, who, number, role = trouble
    if who == LEADER:
        who = stage.leading()
    worker = stage.workers.get(who)
    if kind == "start":
        stage.start(who)
    elif worker is None or not worker.alive:
        return
    elif kind == "kill":
        stage.kill(who)
    elif kind == "kill-at-packet":
        stage.kill_at_packet(who, role, number)
    elif kind == "still-at-packet":
        stage.stand_still_at_packet(who, role, number, ns(_STILL_MS))
    elif kind == "usurp":
        worker.hears_of_nobody()
    elif kind == "stand-still":
        worker.stand_still(ns(number))
    else:
        worker.leave()


def try_seed(seed: int, name: str) -> tuple[list[str], Counter[str]]:
    """What is wrong, and what there is to count."""
    try:
        stage = run_group(seed, name)
    except Exception:  # noqa: BLE001 - Whatever it is, it is a finding.
        return [traceback.format_exc()], Counter()
    counts = Counter(
        owed=len(stage.owed()), handed=len(stage.history), again=len(stage.history) - len(stage.owed()),
        members=len(stage.workers) + len(stage.former),
    )  # fmt: skip
    return stage.problems(), counts


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--family", choices=[*FAMILIES, "all"], default="all")
    parser.add_argument("--show", action="store_true", help="print the scenario of a failing seed")
    options = parser.parse_args(argv)
    failed: Counter[str] = Counter()
    for name in FAMILIES if options.family == "all" else [options.family]:
        counts: Counter[str] = Counter()
        for seed in range(options.first, options.first + options.seeds):
            problems, counted = try_seed(seed, name)
            counts += counted
            if problems:
                failed[name] += 1
                print(f"{name} seed {seed}: " + "\n   ".join(problems[:5]), flush=True)
                if options.show:
                    print(dump_scenario(swarm_scenario(seed, name)), troubles(seed, name))
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"{name}: {options.seeds} seeds, {told}, {failed[name]} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
