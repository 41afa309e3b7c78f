"""A study as data and functions: what is swept, what one run measures, what the results say about the source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from ordercast.core.errors import InvariantError, unknown_name

GUARANTEES_HOLD = "guarantees-hold"
"""The claim, of every study that judges its runs, that all of them held what they promise."""
ORDER_HOLDS = "order-holds"
"""The claim, of studies whose runs may end before everything has arrived, that nothing was out of order until then."""

OURS = "Ordercast: of this implementation, not of the source"
PROTOTYPE = "an independent prototype of the corrected protocol"
"""Where a claim comes from that is not of the source which the study is about."""

Value = str | int | float | bool | None
Row = dict[str, Value]
"""A row of the results, or the parameters of one configuration: plain values, so that both are JSON and columns."""


class SourceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A checkable statement of a source, and what was measured about it."""

    id: str
    source: str
    statement: str
    measured: str
    """What the results say, with numbers and units."""
    holds: bool | None
    """None: the results cannot decide it."""

    @property
    def of_source(self) -> bool:
        """Whether the source claims it, or we do of our own work."""
        return self.source not in (OURS, PROTOTYPE)


class Picture(msgspec.Struct, frozen=True):
    """A figure of a study, and what is seen in it."""

    file: Path
    caption: str


def _all_alike(_parameters: Row) -> float:
    return 1.0


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """One study. Nothing in it depends on where or in which order its configurations run."""

    name: str
    version: int
    """Goes up when `run` measures differently: results of another version are never mixed in."""
    title: str
    source: str
    description: str
    scales: Mapping[str, Sequence[Row]]
    """Scale to the parameters of each configuration. The seed is one of them."""
    run: Callable[[Row], Row]
    """Measures one configuration, in a process of its own choosing; must be picklable and depend on nothing else."""
    claims: Callable[[pa.Table], list[SourceClaim]]
    """Judges the results, incomplete ones too: a claim that they cannot decide holds neither way."""
    figures: Callable[[pa.Table, Path], list[Picture]]
    """Draws the results into a directory and says what to show, in order."""
    words: Mapping[str, str] = {}
    """Abbreviations and terms of the study, and what they stand for."""
    weigh: Callable[[Row], float] = _all_alike
    """How long a configuration takes, relative to the others: the heaviest start first."""

    def configurations(self, scale: str, seeds: int | None = None) -> list[SweepPoint]:
        """The configurations of a scale, sorted by their ids; so many of those that differ in the seed alone."""
        return sorted(self.in_order(scale, seeds), key=lambda configuration: configuration.id)

    def in_order(self, scale: str, seeds: int | None = None) -> list[SweepPoint]:
        """The same, in the order in which the study lists them: by what they mean."""
        if scale not in self.scales:
            raise unknown_name(f"scale of {self.name}", scale, self.scales)
        alike: dict[str, list[SweepPoint]] = {}
        for row in self.scales[scale]:
            point = {name: value for name, value in row.items() if name != "seed"}
            alike.setdefault(self._id(point), []).append(SweepPoint(self._id(row), row))
        found = [one for group in alike.values() for one in group[:seeds]]
        if len({one.id for one in found}) < len(found):
            raise InvariantError(f"{self.name}: scale {scale} lists a configuration twice")
        return found

    def _id(self, parameters: Row) -> str:
        """The same for the same study, version and parameters, on every machine."""
        identity = {"study": self.name, "version": self.version, "parameters": parameters}
        return hashlib.sha256(msgspec.json.encode(identity, order="deterministic")).hexdigest()[:16]


class SweepPoint(msgspec.Struct, frozen=True):
    """One point of a sweep."""

    id: str
    parameters: Row
