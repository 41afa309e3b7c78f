"""Results by system and workload: means over the seeds, and comparisons that know when something is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median

import pyarrow as pa

from ordercast.experiments.atomic_multicast.runs import SERVERS
from ordercast.experiments.atomic_multicast.scales import FEW_SERVERS, MOST_CLIENTS, SOME_CLIENTS
from ordercast.experiments.kit.study import Row, Value

Figure = float | None
"""A measurement; None: it was not made."""


class Results:
    """The rows of a study, looked up by what was run; `clients` and `servers` where a look-up does not say."""

    def __init__(
        self,
        table: pa.Table,
        *,
        clients: int = MOST_CLIENTS,
        servers: int = SERVERS,
        average: Callable[[list[float]], float] = fmean,
    ) -> None:
        self.rows: list[Row] = table.to_pylist()
        self.most_clients = clients
        self._servers = servers
        self._average = average

    def average(
        self,
        column: str,
        system: str,
        workload: str,
        *,
        clients: int | None = None,
        layout: str = "",
        random: float = 0.0,
        servers: int | None = None,
    ) -> Figure:
        """The average of `column` over the seeds."""
        wanted: dict[str, Value] = {
            "system": system,
            "workload": workload,
            "clients": clients or self.most_clients,
            "layout": layout,
            "random": random,
            "servers": servers or self._servers,
        }
        found = [row[column] for row in self.rows if wanted.items() <= row.items()]
        numbers = [float(value) for value in found if isinstance(value, int | float)]
        return self._average(numbers) if numbers else None

    def rates(self) -> str:
        """What throughputs are, in words."""
        return f"multicasts/s with {self.most_clients} clients"

    def clients(self) -> list[int]:
        """The numbers of clients that were measured, ascending."""
        return sorted({clients for row in self.rows if isinstance(clients := row["clients"], int)})

    def pooled(self, column: str) -> Figure:
        """The mean of `column` over all messages of all runs."""
        pairs = [(row[column], row["published"]) for row in self.rows]
        counted = [(float(x), int(n)) for x, n in pairs if isinstance(x, int | float) and isinstance(n, int)]
        total = sum(n for _, n in counted)
        return sum(x * n for x, n in counted) / total if total else None


def few_servers(table: pa.Table) -> Results:
    """Results of real processes: by medians, because a busy machine makes outliers."""
    return Results(table, clients=SOME_CLIENTS, servers=FEW_SERVERS, average=median)


def ratios(over: Iterable[Figure], under: Iterable[Figure]) -> list[Figure]:
    return [a / b if a is not None and b else None for a, b in zip(over, under, strict=True)]


def falls(figures: Sequence[Figure]) -> bool | None:
    """Whether each is below the one before; None where one is missing."""
    known = [figure for figure in figures if figure is not None]
    return all(a > b for a, b in pairwise(known)) if len(known) == len(figures) > 1 else None


def rises(figures: Sequence[Figure]) -> bool | None:
    return falls([None if figure is None else -figure for figure in figures])


def listed(names: Iterable[str], figures: Iterable[Figure], digits: int = 0) -> str:
    """Figures as text: `rand2 154221, rand4 47598`."""
    return ", ".join(
        f"{name} {'?' if figure is None else f'{figure:.{digits}f}'}"
        for name, figure in zip(names, figures, strict=True)
    )
