"""Results by system and workload: means over the seeds, and how they are told."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import pyarrow as pa

from ordercast.experiments.atomic_multicast.runs import SERVERS
from ordercast.experiments.atomic_multicast.scales import FEW_SERVERS, MOST_CLIENTS, SOME_CLIENTS
from ordercast.experiments.kit import results
from ordercast.experiments.kit.results import Estimate, Number, numbers, ratio
from ordercast.experiments.kit.study import Row, Value


class AtomicResults(results.Results):
    """The rows of a study, looked up by what was run; `clients` and `servers` where a look-up does not say."""

    def __init__(
        self, table: pa.Table, *, clients: int = MOST_CLIENTS, servers: int = SERVERS, by_median: bool = False
    ) -> None:
        super().__init__(table)
        self.most_clients = clients
        self._servers = servers
        self._by_median = by_median

    def find(self, column: str, system: str, workload: str, **place: Value) -> Estimate | None:
        """`column` over the seeds, with its confidence; a median has none."""
        usual: Row = {"clients": self.most_clients, "layout": "", "random": 0.0, "servers": self._servers}
        wanted = {**usual, **place, "system": system, "workload": workload}
        if not self._by_median:
            return self.get(column, **wanted)
        found = numbers(row[column] for row in self.where(**wanted))
        return Estimate(median(found), 0.0, len(found)) if found else None

    def average(self, column: str, system: str, workload: str, **place: Value) -> Number:
        """The average of `column` over the seeds."""
        found = self.find(column, system, workload, **place)
        return None if found is None else found.mean

    def rates(self) -> str:
        """Throughputs in words."""
        return f"multicasts/s with {self.most_clients} clients"

    def clients(self) -> list[int]:
        """The numbers of clients that were measured, ascending."""
        return sorted({clients for row in self.rows if isinstance(clients := row["clients"], int)})

    def pooled(self, column: str) -> Number:
        """The mean of `column` over all messages of all runs."""
        pairs = [(row[column], row["published"]) for row in self.rows]
        counted = [(float(x), int(n)) for x, n in pairs if isinstance(x, int | float) and isinstance(n, int)]
        return ratio(sum(x * n for x, n in counted), sum(n for _, n in counted))


def few_servers(table: pa.Table) -> AtomicResults:
    """Results of real processes: by medians, because a busy machine makes outliers."""
    return AtomicResults(table, clients=SOME_CLIENTS, servers=FEW_SERVERS, by_median=True)


def ratios(over: Iterable[Number], under: Iterable[Number]) -> list[Number]:
    return [ratio(a, b) for a, b in zip(over, under, strict=True)]


def listed(names: Iterable[str], figures: Iterable[Number], digits: int = 0) -> str:
    """Figures as text: `rand2 154221, rand4 47598`."""
    return ", ".join(
        f"{name} {'?' if figure is None else f'{figure:.{digits}f}'}"
        for name, figure in zip(names, figures, strict=True)
    )
