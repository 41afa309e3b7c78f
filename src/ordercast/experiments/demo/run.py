"""Runs the demo from first to last process, reports what happens, and judges the result."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from ordercast.experiments.demo.live import LiveControl, LiveOrder
from ordercast.experiments.demo.setting import REPLICAS, SETTINGS, Act, Play
from ordercast.experiments.demo.stage import DemoStage, ReplicaProcess
from ordercast.experiments.ginger.setting import BROKERS
from ordercast.services.bank_checks import ReplicaHistory, bank_violations
from ordercast.services.bank_replica import BankTold, Summary
from ordercast.sim.pubsub.run import CLAIMS
from ordercast.trace.collect import describe_run
from ordercast.trace.schema import MANIFEST

Say = Callable[[str], None]
_START_S = 30.0
"""Thirteen processes start on a machine that may be small and busy."""
_REPAIR_S = 20.0
_STEP_S = 0.05
_ORDERS_S = 0.5
_TOLD = ("total_degree", "order_scope", "partitions", "lease_ms", "safe_copies", "replicas", "operations",
         "interval_ms", "accounts", "mix")  # fmt: skip
"""Settings that the report shows."""


class Ended(msgspec.Struct):
    """The end of a run: what is left to be judged and drawn."""

    run: Path
    """The trace, for the judge."""
    summaries: list[Summary]
    problems: list[str]
    """Everything that was not as it should be, in words."""


def perform(play: Play, directory: Path, say: Say, control: LiveControl | None = None) -> Ended:
    """Run `play` in the empty `directory`; no process is left, whatever happens. With `control`, it takes orders."""
    web, origins = ({}, ()) if control is None else (control.doors, (control.origin,))
    with DemoStage(play, directory, lambda *told: _retell(say, *told), web=web, origins=origins) as stage:
        stage.start_brokers(_START_S)
        say(f"the tree stands: {tree_in_words(stage.tree() or {})}")
        stage.start_replicas(_START_S)
        say(f"replicas joined: {', '.join(f'{name} at {edge}' for name, (edge, _) in REPLICAS.items())}")
        problems = _work(stage, say, control)
        problems += [problem for replica in stage.replicas for problem in _unfinished(replica, play)]
    problems += list(bank_problems(stage.histories))
    _describe(stage, play, drained=not problems)
    return Ended(stage.run, [replica.summary for replica in stage.replicas if replica.summary is not None], problems)


def _work(stage: DemoStage, say: Say, control: LiveControl | None) -> list[str]:
    """Let the replicas work, do to the brokers what the play says, and wait until everybody has everything."""
    play = stage.play
    begin = time.monotonic()
    for replica in stage.replicas:
        replica.begin()
    say("working")
    problems = []
    for act in play.acts:
        time.sleep(max(0.0, begin + act.at_s - time.monotonic()))
        problems += _act(stage, act, say)
    last_s = play.operations * play.interval_ms / 1000
    if control is not None:
        problems += _obey(stage, control, say, until=begin + last_s)
    deadline = begin + last_s + play.patience_s + _REPAIR_S
    for replica in stage.replicas:
        if not replica.wait(max(0.0, deadline - time.monotonic())):
            problems.append(f"replica {replica.name} did not come to an end")
    if not problems:
        say(f"everybody has everything, {max(0.0, time.monotonic() - begin - last_s):.1f} s after the last operation")
    if (tree := stage.tree()) is None:
        problems.append("there is no whole tree at the end")
    else:
        say(f"the tree at the end: {tree_in_words(tree)}")
    return problems


def _act(stage: DemoStage, act: Act, say: Say) -> list[str]:
    began = time.monotonic()
    if act.deed == "kill":
        stage.kill(act.broker)
        say(f"killed {act.broker}, {act.role}")
    else:
        stage.restart(act.broker, _START_S)
        say(f"restarted {act.broker}, {act.role}, which has forgotten everything")
    while (tree := stage.tree()) is None:
        if time.monotonic() - began > _REPAIR_S:
            return [f"no whole tree within {_REPAIR_S:g} s after {act.broker} was {act.deed}ed"]
        time.sleep(_STEP_S)
    say(f"whole again within {time.monotonic() - began:.1f} s: {tree_in_words(tree)}")
    return []


def _obey(stage: DemoStage, control: LiveControl, say: Say, until: float) -> list[str]:
    """Do what people press, until the last operation has been asked for."""
    problems = []
    while (left := until - time.monotonic()) > 0 and any(replica.running for replica in stage.replicas):
        try:
            order = control.orders.get(timeout=min(left, _ORDERS_S))
        except queue.Empty:
            continue
        refusal = _refusal(stage, order)
        if refusal:
            say(f"will not {order.deed} {order.broker}: {refusal}")
        else:
            problems += _act(stage, Act(0.0, order.deed, order.broker, "from the page"), say)
    return problems


def _refusal(stage: DemoStage, order: LiveOrder) -> str:
    """Why an order makes no sense; empty if it does."""
    if (order.deed == "kill") == (order.broker in stage.killed):
        return "it is dead already" if order.deed == "kill" else "it runs"
    alive = len(BROKERS) - len(stage.killed)
    if order.deed == "kill" and (alive - 1) * 2 <= len(BROKERS):
        return f"only {alive} of {len(BROKERS)} are left, and without a majority nobody may go on"
    return ""


def _retell(say: Say, name: str, told: BankTold) -> None:
    """Print a replica's news of its broker."""
    if told.event == "connected":
        say(f"{name} goes on at {told.detail}")
    elif told.event == "disconnected":
        say(f"{name} lost {told.detail.partition(' ')[0]}")  # The rest says where it was, and how it showed.
    else:
        say(f"{name}: {told.event} {told.detail}")


def _unfinished(replica: ReplicaProcess, play: Play) -> Iterator[str]:
    """Every operation that it was to ask for must be done, its own and those of the others."""
    summary = replica.summary
    if summary is None:
        yield f"replica {replica.name} ended without a word: {replica.last_words()}"
        return
    if summary.problem:
        yield f"replica {replica.name}: {summary.problem}"
    if summary.asked != play.operations:
        yield f"replica {replica.name} asked for {summary.asked} of {play.operations} operations"
    expected = play.expected(REPLICAS[replica.name][1])
    if not summary.complete or summary.applied != expected:
        yield f"replica {replica.name} did {summary.applied} of {expected} operations"


def bank_problems(histories: Path) -> Iterator[str]:
    """Disagreements of a topic's replicas, with each other or with arithmetic."""
    for topic in sorted({topic for _, topic in REPLICAS.values()}):
        names = [name for name, (_, of) in REPLICAS.items() if of == topic]
        files = [histories / f"{name}.json" for name in names]
        found = [msgspec.json.decode(file.read_bytes(), type=ReplicaHistory) for file in files if file.exists()]
        yield from (f"{topic}: {violation}" for violation in bank_violations(found))


def _describe(stage: DemoStage, play: Play, *, drained: bool) -> None:
    """Write down what the journals cannot say: that everybody waited for the end, and what is claimed."""
    manifest, _ = describe_run(stage.run)
    options = msgspec.to_builtins(SETTINGS) | {
        "replicas": len(REPLICAS), "operations": play.operations, "interval_ms": play.interval_ms,
        "accounts": play.accounts, "mix": " ".join(map(str, play.mix)),
    }  # fmt: skip
    told = msgspec.structs.replace(
        manifest, run_id="demo", scenario="demo", seed=play.seed, version=version("ordercast"), drained=drained,
        claims=CLAIMS, options={name: options[name] for name in _TOLD},
        faults={"crash": stage.kills},
    )  # fmt: skip
    (stage.run / MANIFEST).write_bytes(msgspec.json.encode(told))


def tree_in_words(parents: dict[str, str]) -> str:
    """b0(b1(b4 b5) b2(b6))."""

    def below(broker: str) -> str:
        children = [below(child) for child, parent in parents.items() if parent == broker]
        return f"{broker}({' '.join(children)})" if children else broker

    return " ".join(below(broker) for broker, parent in parents.items() if not parent)
