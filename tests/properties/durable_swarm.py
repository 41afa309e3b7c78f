"""A swarm of readers with data directories that read late, go away for short or for too long, and come back.

    python -m tests.properties.durable_swarm --seeds 200

Readers and publishers are the client library itself, in the simulator. Readers follow topics and filters, kept and not
kept, some of which begin while they are away; they let lie what they were handed, close, vanish and are killed. Judged
by what the applications read: of what is kept everything since the first subscription, once and in order; of the rest
nothing is missing unless the reader was told. A message that was read last before a kill may come once more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

import msgspec

from ordercast.scenario.brokers import BrokerTree, KeptTopic
from ordercast.scenario.load import dump_scenario
from ordercast.scenario.model import Scenario
from tests.properties.pubsub_swarm import Draft, _primary
from tests.support.durable_stage import DurableStage, ReaderPlan

FAMILIES = ("calm", "brokers", "cuts")
TOPICS = ["k.0", "k.1", "k.2", "u.0", "u.1"]
PATTERNS = [["k.>"], [">"], ["u.>"], ["k.0", "k.1"], ["k.>", "u.0"], ["u.>", "k.*"], ["k.0", "u.1"]]
_TIMEOUT_MS = 1500.0
_LAST_MS = 22_000.0
_END_MS = 60_000.0


def keeps(topic: str) -> bool:
    return topic.startswith("k.")


def draft_of(seed: int, name: str) -> Draft:
    draft = Draft(seed, f"durable-{name}")
    draft.brokers = draft.brokers[: 2 + seed % 3] if name == "calm" else draft.brokers[:3]
    draft.parents = {child: parent for child, parent in draft.parents.items() if child in draft.brokers}
    draft.latency["high_ms"] = min(draft.latency["high_ms"], 30)
    draft.options |= {
        "order_scope": "session", "member_timeout_ms": _TIMEOUT_MS, "stability_ms": 20, "retry_ms": 60,
        "fold_ms": draft.dice.pick([30, 400, 5000]),
    }  # fmt: skip
    _primary(draft)
    draft.options["lease_ms"] = 1000
    draft.clients = {"c0": {"edge": "b0", "topics": ["t0"]}}
    draft.duration = 12_000.0
    if name == "brokers":
        draft.crash(draft.minority()[:1], back=1.0, state="kept")
    if name == "cuts" and len(draft.brokers) > 1:
        for _ in range(3):
            draft.faults.append(
                {"kind": "cut", "between": draft.dice.sample(draft.brokers, 2), "at_ms": draft.moment()}
            )
    return draft


def swarm_scenario(seed: int, name: str) -> Scenario:
    draft = draft_of(seed, name)
    scenario = draft.scenario(seed, name)
    assert isinstance(scenario.overlay, BrokerTree)
    kept = [KeptTopic(filter="k.>", copies=len(draft.brokers))]
    overlay = msgspec.structs.replace(scenario.overlay, keep=kept)
    return msgspec.structs.replace(scenario, name=f"durable-swarm-{name}-{seed}", overlay=overlay)


def lives_of(draft: Draft) -> list[ReaderPlan]:
    """From three to five lives, with short and long absences between them; the last one reads to the end."""
    dice = draft.dice
    found: list[ReaderPlan] = []
    at = dice.between(3000, 4000)
    for _ in range(2 + dice.below(3)):
        end = at + dice.between(300, dice.pick([600, 3000]))
        plan = ReaderPlan(
            at, end, dice.pick(["close", "close", "abandon", "kill"]), waits_ms=dice.pick([0, 0, 300, 2000]),
            thinks_ms=dice.pick([0, 5, 50, 400]),
        )  # fmt: skip
        found.append(plan)
        at = end + dice.pick([dice.between(50, 600), dice.between(50, 600), dice.between(3 * _TIMEOUT_MS, 5000)])
    last = max(at, _LAST_MS)
    return [*found, ReaderPlan(last, 0.0, "close", waits_ms=dice.pick([0, 2000]), thinks_ms=dice.pick([0, 5]))]


def run_readers(seed: int, name: str, directory: Path) -> DurableStage:
    """One run, judged by `problems` of what it returns."""
    draft = draft_of(seed, name)
    dice = draft.dice
    stage = DurableStage(swarm_scenario(seed, name), directory)
    for i in range(2):
        topics = dice.sample(TOPICS, 2 + dice.below(3))
        begun = {topic: dice.between(2500, dice.pick([3000, 14_000])) for topic in topics}
        moments = sorted(dice.between(2500, _LAST_MS + 4000) for _ in range(20 + dice.below(40)))
        plan = [(at, dice.pick(there)) for at in moments if (there := [t for t in topics if begun[t] <= at])]
        stage.publisher(f"p{i}", dice.pick(draft.brokers), 2400.0 + 20 * i, plan)
    for i in range(1 + dice.below(2)):
        patterns = dice.pick(PATTERNS)
        kept = all(map(keeps, patterns))
        stage.reader(f"r{i}", patterns, dice.pick(["now", "now", "earliest"]) if kept else "now", lives_of(draft))
    try:
        stage.live(_END_MS)
    finally:
        stage.end()
    return stage


def try_seed(seed: int, name: str) -> tuple[list[str], Counter[str]]:
    """What is wrong, and what there is to count."""
    try:
        with tempfile.TemporaryDirectory() as directory:
            stage = run_readers(seed, name, Path(directory))
    except Exception:  # noqa: BLE001 - Whatever it is, it is a finding.
        return [traceback.format_exc()], Counter()
    told = [kind for reader in stage.readers for kind, _ in reader.story]
    counts = Counter(
        published=sum(map(len, stage.published.values())), read=told.count("read"), told=told.count("told"),
        lives=told.count("over"),
    )  # fmt: skip
    return stage.problems(keeps), counts


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
                    print(dump_scenario(swarm_scenario(seed, name)))
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"{name}: {options.seeds} seeds, {told}, {failed[name]} failed", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
