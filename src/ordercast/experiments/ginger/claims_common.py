"""Claims that several of the studies judge, each from its own runs."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.experiments.ginger.measures import GUARANTEES
from ordercast.experiments.ginger.reference import PROTOTYPE_MS
from ordercast.experiments.ginger.scales import FEW_KEYS
from ordercast.experiments.ginger.setting import FAULTS, MAIN, SCENARIOS
from ordercast.experiments.ginger.sources import SHORT
from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.results import Results, above, shown, within
from ordercast.experiments.kit.study import OURS, SourceClaim

_EQUAL = "equal"
_SLOWER, _SLOWER_FEW = 1.5, 1.2
_ALIKE = 0.15
_LIKE = 0.15
_LITTLE = 0.25
_COSTLY = ("S2", "S4", "S5")
_ONE_FAULT = ("S1", "S2")


def claim(id_: str, statement: str, measured: str, holds: bool | None, *, source: str = SHORT) -> SourceClaim:
    return SourceClaim(id=id_, source=source, statement=statement, measured=measured, holds=holds)


def held(results: Results) -> SourceClaim:
    return guarantees_hold(
        results.rows,
        "Every run holds what it promises: integrity, agreement, FIFO, causal and total order, one order of all totals "
        "of a topic, and real time.",
        what="scenario",
    )


def bank_agrees(results: Results) -> SourceClaim:
    verdicts = [row["bank"] for row in results.rows]
    broken = [f"{row['scenario']}, configuration {row['id']}: {row['bank']}" for row in results.rows
              if row["bank"] not in (_EQUAL, None)]  # fmt: skip
    equal = verdicts.count(_EQUAL)
    return claim(
        "bank-replicas-equal",
        "Replicas of the bank that apply what their members deliver refuse the same operations, have the same balance "
        "after every withdrawal, transfer and interest, and end with the same balances.",
        f"in {equal} of {len(verdicts)} runs" + (f"; {broken[0]}" if broken else ""),
        not broken if equal or broken else None,
        source=OURS,
    )


def per_scenario(results: Results, column: str, scenarios: Sequence[str] = SCENARIOS) -> str:
    """`S0 316 ± 2/317 ± 3/690 ± 5, ...`: eventual, causal, total."""
    parts = [
        f"{name} " + "/".join(shown(results.get(f"{tag}_{column}", scenario=name, part=MAIN)) for tag in GUARANTEES)
        for name in scenarios
    ]
    return ", ".join(parts)


def _prototype() -> str:
    return ", ".join(f"{name} {'/'.join(f'{value:g}' for value in values)}" for name, values in PROTOTYPE_MS.items())


def totals_are_slower(results: Results) -> SourceClaim:
    verdicts = [
        above(_mean(results, "total", name), _mean(results, tag, name), _SLOWER)
        for name in SCENARIOS
        for tag in ("eventual", "causal")
    ]
    few = [results.get(f"{tag}_ms_mean", keys=FEW_KEYS, transfers=True) for tag in GUARANTEES]
    one = [results.get(f"{tag}_ms_mean", keys=FEW_KEYS, transfers=False) for tag in GUARANTEES]
    verdicts += [
        None if few[2] is None or other is None else few[2].mean > _SLOWER_FEW * other.mean for other in few[:2]
    ]
    return claim(
        "Q2",
        "Totals are slower than eventual and causal publications: with 100 keys their mean is more than "
        f"{_SLOWER:g} times either in S0 to S5, with {FEW_KEYS} keys more than {_SLOWER_FEW:g} times.",
        f"mean ms (eventual/causal/total): {per_scenario(results, 'ms_mean')}; {FEW_KEYS} keys, S0: "
        f"{'/'.join(map(shown, few))}, if transfers took one key: {'/'.join(map(shown, one))}. A total never waits "
        f"for a lock, the others do, and a transfer locks two of the ten accounts. Prototype, 10 keys: 561/539/787",
        all_of(verdicts),
    )


def like_the_prototype(results: Results) -> SourceClaim:
    """Two implementations of the corrected protocol, written apart, should measure about the same."""
    verdicts = [
        within(_mean(results, tag, name), PROTOTYPE_MS[name][i], _LIKE)
        for name in SCENARIOS
        for i, tag in enumerate(GUARANTEES)
    ]
    return claim(
        "like-the-prototype",
        "Mean latencies are those of an earlier prototype of the corrected protocol (100 keys, 400 operations, three "
        f"seeds), within {_LIKE:.0%}.",
        f"eventual/causal/total in ms, mean: {per_scenario(results, 'ms_mean')}; prototype: {_prototype()}; median: "
        f"{per_scenario(results, 'ms_p50')}; 95th percentile: {per_scenario(results, 'ms_p95')}",
        all_of(verdicts),
        source=OURS,
    )


def eventual_and_causal_are_alike(results: Results) -> SourceClaim:
    pairs = {name: (_mean(results, "eventual", name), _mean(results, "causal", name)) for name in SCENARIOS}
    shares = [
        f"{name} {100 * (causal / eventual - 1):+.1f} %"
        for name, (eventual, causal) in pairs.items()
        if eventual is not None and causal is not None
    ]
    return claim(
        "Q3",
        f"Eventual and causal publications have the same mean latency, within {_ALIKE:.0%}, in S0 to S5.",
        f"causal against eventual: {', '.join(shares)}",
        all_of(within(causal, eventual, _ALIKE) for eventual, causal in pairs.values()),
    )


def faults_cost(results: Results) -> SourceClaim:
    base = {tag: _mean(results, tag, "S0") for tag in GUARANTEES}
    verdicts = [above(_mean(results, tag, name), base[tag]) for name in _COSTLY for tag in GUARANTEES]
    rounds = {name: results.mean("rounds_most", scenario=name, part=MAIN) for name in SCENARIOS}
    known = sorted((n for n in SCENARIOS if rounds[n] is not None), key=lambda n: (rounds[n] or 0.0, n))
    tails = {name: results.get("all_after_ms_p95", scenario=name, part=MAIN) for name in known}
    verdicts.append(_rises_with([(rounds[name] or 0.0, tails[name].mean) for name in known if tails[name] is not None]))  # type: ignore[union-attr]
    told = ", ".join(f"{name} ({rounds[name]:.1f} rounds) {shown(tails[name])}" for name in known)
    by_faults = ", ".join(f"{faults}: {' and '.join(_of_all(results, faults))}" for faults in range(4))
    return claim(
        "Q4",
        "More faults, higher latency: the whole-run means of S2, S4 and S5 are above those of S0, and the 95th "
        "percentile of what is published within 5 s of the crash grows with the most rounds that a broker needs.",
        f"mean ms (eventual/causal/total): {per_scenario(results, 'ms_mean')}; 95th percentile "
        f"after the crash, all guarantees: {told}; mean of all by number of faults: {by_faults}. It is not the number "
        "that decides but where: a root takes an election, S3 takes few rounds but moves a client, and a repaired tree "
        f"can have shorter paths than the first one",
        all_of(verdicts),
    )


def _of_all(results: Results, faults: int) -> list[str]:
    """What each scenario with so many faults has: scenarios are no seeds of each other."""
    names = [name for name in SCENARIOS if FAULTS[name] == faults]
    return [f"{name} {shown(results.get('all_ms_mean', scenario=name, part=MAIN))}" for name in names]


def _rises_with(points: Sequence[tuple[float, float]]) -> bool | None:
    """Whether whoever needs more rounds has the higher value, for every pair that differs in rounds."""
    if len(points) < 2:
        return None
    return all(a[1] < b[1] for a in points for b in points if a[0] < b[0])


def faults_cost_little(results: Results) -> SourceClaim:
    verdicts, texts = [], []
    for name in _ONE_FAULT:
        changes = []
        for tag in GUARANTEES:
            value, base = _mean(results, tag, name), _mean(results, tag, "S0")
            verdicts.append(within(value, base, _LITTLE))
            changes.append("?" if value is None or not base else f"{100 * (value / base - 1):+.0f} %")
        texts.append(f"{name} {'/'.join(changes)}")
    return claim(
        "Q7",
        f"Faults cost little overall: with one fault the whole-run means stay within {_LITTLE:.0%} of S0.",
        f"against S0 (eventual/causal/total): {', '.join(texts)}. The longer the run, the less a repair weighs: these "
        "are 25 s. In S2 nothing is committed until there is a new root, and a new connection costs a round trip "
        "before anything is said on it, so that the election takes two. Prototype: S1 -3 %, S2 +18 %",
        all_of(verdicts),
    )


def _mean(results: Results, tag: str, scenario: str) -> float | None:
    return results.mean(f"{tag}_ms_mean", scenario=scenario, part=MAIN)
