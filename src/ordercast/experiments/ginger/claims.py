"""Decides the source's claims from the results of each study, each with the numbers that decide it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from ordercast.experiments.ginger.claims_common import (
    bank_agrees,
    claim,
    eventual_and_causal_are_alike,
    faults_cost,
    faults_cost_little,
    held,
    like_the_prototype,
    totals_are_slower,
)
from ordercast.experiments.ginger.claims_structure import structural_claims
from ordercast.experiments.ginger.measures import GUARANTEES
from ordercast.experiments.ginger.reference import PROTOTYPE_KEYS_MS, PROTOTYPE_REPAIRS
from ordercast.experiments.ginger.repairs import Mended, failovers, repairs, took
from ordercast.experiments.ginger.scales import BUFFER, BY_FAULTS, KEYS, LENGTH, MANY_KEYS, ONE_KEY, SMALL_BUFFER
from ordercast.experiments.ginger.setting import MAIN, PROCESSES, mean_path_ms
from ordercast.experiments.kit.claims import HELD, all_of
from ordercast.experiments.kit.results import Estimate, Results, estimate, numbers, rises, shown, within
from ordercast.experiments.kit.study import OURS, SourceClaim

_NEAR = 0.10
_SLACK = 1.02
_GROWS = 1.3
"""A mean that grows by so much from one length of the run to the doubled one belongs to a queue that grows."""


def scenario_claims(table: pa.Table) -> list[SourceClaim]:
    results = Results(table)
    return [
        held(results),
        bank_agrees(results),
        _real_processes(results),
        *structural_claims(results),
        totals_are_slower(results),
        eventual_and_causal_are_alike(results),
        faults_cost(results),
        _follows_the_links(results),
        faults_cost_little(results),
        like_the_prototype(results),
    ]


def repair_claims(table: pa.Table) -> list[SourceClaim]:
    results = Results(table)
    return [
        held(results),
        bank_agrees(results),
        _more_rounds(results),
        _elections(results),
        _clients(results),
    ]


def fault_claims(table: pa.Table) -> list[SourceClaim]:
    results = Results(table)
    return [
        held(results), bank_agrees(results), faults_cost(results), faults_cost_little(results),
        like_the_prototype(results), _small_buffer(results),
    ]  # fmt: skip


def key_claims(table: pa.Table) -> list[SourceClaim]:
    results = Results(table)
    return [
        held(results), bank_agrees(results), _more_keys(results), _saturated_by_one_key(results),
        _saturated_by_sessions(results),
    ]  # fmt: skip


def _real_processes(results: Results) -> SourceClaim:
    rows = results.where(runs=PROCESSES)
    good = [row for row in rows if row["judged"] == HELD and row["bank"] == "equal"]
    texts = []
    for name in sorted({str(row["scenario"]) for row in rows}):
        real = [results.get(f"{tag}_ms_mean", scenario=name, runs=PROCESSES) for tag in GUARANTEES]
        rest = results.get("fault_to_rest_ms", scenario=name, runs=PROCESSES)
        simulated = results.get("fault_to_rest_ms", scenario=name, part=MAIN)
        texts.append(
            f"{name} {'/'.join(map(shown, real))} ms, repaired after {shown(rest)} ms (simulated {shown(simulated)})"
        )
    return claim(
        "real-processes",
        "With brokers as real processes, killed with SIGKILL, and every link delayed, in a fifth of the time, the same "
        "promises hold.",
        f"held in {len(good)} of {len(rows)} runs; times multiplied by five, mean latency eventual/causal/total: "
        f"{', '.join(texts)}" if rows else "nothing was run",
        len(good) == len(rows) if rows else None,
        source=OURS,
    )  # fmt: skip


def _follows_the_links(results: Results) -> SourceClaim:
    found = results.get("eventual_ms_mean", scenario="S0", keys=MANY_KEYS)
    expected = mean_path_ms()
    return claim(
        "Q6",
        f"Without faults latency follows that of the links: with {MANY_KEYS} keys the mean of eventual publications is "
        f"within {_NEAR:.0%} of the mean path between a publisher and a member, {expected:.0f} ms.",
        f"{shown(found)} ms. Prototype: 293",
        within(found.mean if found else None, expected, _NEAR),
    )


# Repairs


def _more_rounds(results: Results) -> SourceClaim:
    """Every number of rounds by itself: put together, those that do not fit would not show."""
    plain = [repair for repair in repairs(results) if not repair.elected]
    by_rounds = {n: [r for r in plain if r.rounds == n] for n in sorted({r.rounds for r in plain})}
    means = [took(group) for group in by_rounds.values()]
    told = ", ".join(
        f"{n} {'round' if n == 1 else 'rounds'} {_range(group)}" for n, group in by_rounds.items()
    )  # fmt: skip
    return claim(
        "Q1",
        "Repair time, from the loss of the parent to the last missed publication, grows with the rounds: its mean "
        "increases from every number of rounds to the next (repairs without an election of one's own).",
        f"mean ms of n different repairs, smallest to largest: {told}. With the same rounds, distance decides. "
        f"{PROTOTYPE_REPAIRS}",
        rises([found.mean for found in means if found is not None]),
    )


def _range(group: Sequence[Mended]) -> str:
    times, found = [repair.ms for repair in group], took(group)
    return f"{shown(found)} (n = {found.n if found else 0}, {min(times):.0f} to {max(times):.0f})"


def _elections(results: Results) -> SourceClaim:
    """Reported apart: an election is not a matter of rounds."""
    children = [r for r in repairs(results) if r.elected]
    winners = [r for r in children if not r.parent]
    others = [r for r in children if r.parent]
    names = ("S2", "S4")
    elections = {name: took((r for r in winners if r.scenario == name), lambda r: r.election_ms) for name in names}
    told = ", ".join(f"{name} {shown(found)}" for name, found in elections.items())
    rest = ", ".join(f"{name} {shown(took([r for r in others if r.scenario == name]))}" for name in names)
    elected = sorted({r.broker for r in winners})
    return claim(
        "election-apart",
        "Where the root died, b2 is elected, and its other children are its children in the end.",
        f"elected: {', '.join(elected) or 'nobody'}; the election took in ms: {told}; the losers were synchronised "
        f"after: {rest}",
        elected == ["b2"] and {r.parent for r in others} == {"b2"} if children else None,
    )


def _clients(results: Results) -> SourceClaim:
    found = list(failovers(results))
    names = sorted({(scenario, client) for scenario, client, _ in found})
    told = ", ".join(
        f"{client} in {scenario} {shown(estimate([ms for s, c, ms in found if (s, c) == (scenario, client)]))}"
        for scenario, client in names
    )
    return claim(
        "client-failover",
        "Only clients whose edge broker died look for another one: c0 in S3.",
        f"from the loss of the edge to live topics, in ms: {told or 'nobody moved'}",
        names == [("S3", "c0")] if found else None,
        source=OURS,
    )


# Faults and buffers


def _small_buffer(results: Results) -> SourceClaim:
    verdicts, texts = [], []
    for name in BY_FAULTS[1:3]:
        small, large = pausing_and_not(results, name)
        peak = results.get("peak_log", scenario=name, part=MAIN)
        verdicts.append(None if large is None or small is None else small.mean > large.mean)
        texts.append(f"{name}: {shown(small)} against {shown(large)} ms; the longest log had {shown(peak)} entries")
    calm = pausing_and_not(results, "S0")
    return claim(
        "small-buffer",
        f"The source's bufferSize of {SMALL_BUFFER}, taken as the limit above which clients pause, costs latency "
        "where the root dies: logs grow beyond it before the new root may call anything stable.",
        f"mean of all guarantees, under the same seeds (n = {calm[0].n if calm[0] else 0}): {'; '.join(texts)}; "
        f"without faults {' against '.join(map(shown, calm))} ms",
        all_of(verdicts),
        source=OURS,
    )


def pausing_and_not(results: Results, scenario: str) -> list[Estimate | None]:
    """The mean latency with the small buffer and with the usual one, each over the seeds that were run with both."""
    by_part = [
        {row["seed"]: row["all_ms_mean"] for row in results.where(scenario=scenario, part=part)}
        for part in (BUFFER, MAIN)
    ]
    shared = sorted(by_part[0].keys() & by_part[1].keys(), key=str)
    return [estimate(numbers(found[seed] for seed in shared)) for found in by_part]


# Keys


def _more_keys(results: Results) -> SourceClaim:
    verdicts: list[bool | None] = []
    texts, growing = [], []
    for faults, name in enumerate(BY_FAULTS):
        by_tag = {}
        for tag in GUARANTEES:
            found = [results.get(f"{tag}_ms_mean", scenario=name, keys=keys, part=MAIN) for keys in KEYS]
            by_tag[tag] = ", ".join(map(shown, found))
            for (fewer, more), (before, after) in zip(pairwise(KEYS), pairwise(found), strict=True):
                verdicts.append(None if before is None or after is None else after.mean <= _SLACK * before.mean)
                if verdicts[-1] is False:
                    noise = _grows_within_noise(results, f"{tag}_ms_mean", name, fewer, more)
                    growing.append(f"{tag}, {faults} faults, {fewer} to {more} keys{' (within the noise)' * noise}")
        texts.append(f"{faults} faults: " + "; ".join(f"{tag} {values}" for tag, values in by_tag.items()))
    one_key = "; ".join(
        f"{keys} keys " + "/".join(shown(results.get(f"{tag}_ms_mean", keys=keys, part=ONE_KEY)) for tag in GUARANTEES)
        for keys in KEYS[1:]
    )
    prototype = "; ".join(
        f"{keys} keys {'/'.join(f'{value:g}' for value in values)}" for keys, values in PROTOTYPE_KEYS_MS.items()
    )
    return claim(
        "Q5",
        f"More keys, lower latency: for every guarantee and 0 to 3 faults the mean does not grow from {KEYS[0]} to "
        f"{', '.join(map(str, KEYS[1:]))} keys (2 % slack).",
        f"mean ms by keys: {'. '.join(texts)}. Growing: "
        f"{'; '.join(growing) or 'none'}. Without faults and if transfers took one key (eventual/causal/total): "
        f"{one_key}. Prototype, without faults: {prototype}",
        all_of(verdicts),
    )


def _grows_within_noise(results: Results, column: str, scenario: str, fewer: int, more: int) -> bool:
    """Whether the growth beyond the slack, seed by seed, is less than its confidence: the verdict is by the means."""
    by_seed = [
        {row["seed"]: row[column] for row in results.where(scenario=scenario, keys=keys, part=MAIN)}
        for keys in (fewer, more)
    ]
    growth = [
        float(by_seed[1][seed] or 0.0) - _SLACK * float(before or 0.0)
        for seed, before in by_seed[0].items()
        if seed in by_seed[1]
    ]
    found = estimate(growth)
    return found is not None and (found.n == 1 or found.mean <= found.half)


def by_length(results: Results, keys: int, order_scope: str, operations: int) -> Estimate | None:
    """The mean latency without faults, whatever else the run is for."""
    return results.get(
        "all_ms_mean", scenario="S0", transfers=True, keys=keys, order_scope=order_scope, operations=operations
    )


def lengths_of(results: Results) -> list[int]:
    """How long clients publish, in operations, where that is what is varied."""
    return sorted({int(row["operations"] or 0) for row in results.where(part=LENGTH)})


def _saturated_by_one_key(results: Results) -> SourceClaim:
    lengths = lengths_of(results)
    one, many = ([by_length(results, keys, "key", n) for n in lengths] for keys in (1, 100))
    return claim(
        "saturation-one-key",
        "One key is more than the system can serve: the queue grows as long as publications come, and the mean latency "
        f"with the length of the run (by more than {_GROWS:g} at each doubling), while with 100 keys it does not.",
        f"mean ms of all guarantees for {', '.join(map(str, lengths))} operations per client: "
        f"{', '.join(map(shown, one))} with one key, {', '.join(map(shown, many))} with 100. A total takes about 0.7 s "
        "here, and what shares its key waits for it; 30 % of 20 publications a second and client are total",
        all_of([*_growing(one), *(None if g is None else not g for g in _growing(many))]),
        source=OURS,
    )


def _saturated_by_sessions(results: Results) -> SourceClaim:
    lengths = lengths_of(results)
    by_keys = {keys: [by_length(results, keys, "session", n) for n in lengths] for keys in (100, 1000)}
    told = "; ".join(f"{keys} keys: {', '.join(map(shown, found))}" for keys, found in by_keys.items())
    return claim(
        "saturation-session",
        "With the order scope `session` the same load is too much at any number of keys: everything waits for its "
        "client's earlier totals, whatever their keys, and the mean grows with the length of the run.",
        f"mean ms of all guarantees for {', '.join(map(str, lengths))} operations per client: {told}. Clients that "
        "want this order publish a second apart, or wait for each total",
        all_of(growing for found in by_keys.values() for growing in _growing(found)),
        source=OURS,
    )


def _growing(means: Sequence[Estimate | None]) -> list[bool | None]:
    return [None if a is None or b is None else b.mean > _GROWS * a.mean for a, b in pairwise(means)]
