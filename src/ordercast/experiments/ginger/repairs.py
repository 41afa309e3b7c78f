"""The repairs in the results of the repair study, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ordercast.experiments.ginger.setting import BROKERS, CLIENTS
from ordercast.experiments.kit.results import Estimate, Results, estimate

ROOT = "b0"


class Mended(msgspec.Struct, frozen=True):
    """A broker that lost its parent and found its place again."""

    scenario: str
    seed: int
    broker: str
    lost: str
    parent: str
    """Empty: it became root."""
    rounds: int
    attached_ms: float
    synchronised_ms: float | None
    """Until it had what it had missed; None: it became root, and others synchronise with it."""
    election_ms: float

    @property
    def elected(self) -> bool:
        """It lost the root: there was an election first."""
        return self.lost == ROOT

    @property
    def ms(self) -> float:
        return self.attached_ms if self.synchronised_ms is None else self.synchronised_ms


def repairs(results: Results) -> Iterator[Mended]:
    for row in results.rows:
        for broker in BROKERS[1:]:
            rounds, attached = row.get(f"{broker}_rounds"), row.get(f"{broker}_attached_ms")
            synchronised = row.get(f"{broker}_synchronised_ms")
            if isinstance(rounds, int | float) and isinstance(attached, int | float):
                yield Mended(
                    scenario=str(row["scenario"]),
                    seed=int(row["seed"] or 0),
                    broker=broker,
                    lost=str(row[f"{broker}_lost"]),
                    parent=str(row[f"{broker}_parent"] or ""),
                    rounds=int(rounds),
                    attached_ms=float(attached),
                    synchronised_ms=float(synchronised) if isinstance(synchronised, int | float) else None,
                    election_ms=float(row[f"{broker}_election_ms"] or 0.0),
                )


def took(group: Iterable[Mended], of: Callable[[Mended], float | None] = lambda repair: repair.ms) -> Estimate | None:
    """The mean time of these repairs; those of one broker in one scenario are a point, over the seeds.

    Scenarios share what is drawn for a seed, so that a broker may be repaired in the same way in several of them, to
    the nanosecond: that is one repair, seen several times.
    """
    points: dict[tuple[str, str], list[float]] = {}
    seen = set()
    for repair in group:
        value = of(repair)
        same = repair.seed, repair.broker, repair.lost, repair.parent, repair.rounds, value
        if value is not None and same not in seen:
            seen.add(same)
            points.setdefault((repair.scenario, repair.broker), []).append(value)
    return estimate(*points.values())


def failovers(results: Results) -> Iterator[tuple[str, str, float]]:
    """Scenario, client, and how long it had no edge."""
    for row in results.rows:
        for client in CLIENTS:
            value = row.get(f"{client}_failover_ms")
            if isinstance(value, int | float):
                yield str(row["scenario"]), client, float(value)
