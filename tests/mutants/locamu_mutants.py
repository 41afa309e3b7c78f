"""LoCaMu with one rule broken at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ordercast.core.machine import Outbox, Place
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.ordering import CausalOrdering
from ordercast.protocols.locamu.rules import CORRECTED, Rules
from ordercast.protocols.locamu.store import Copy
from ordercast.protocols.locamu.variants import LOCAMU
from ordercast.protocols.locamu.vectors import Name, Vector
from tests.support.locamu_lab import with_parts


def _with(name: str, machine: type[Locamu]) -> ProtocolInfo:
    return msgspec.structs.replace(LOCAMU, name=name, build=machine)


def _but(**changes: bool) -> Rules:
    return msgspec.structs.replace(CORRECTED, **changes)


class JumpsUnsafely(Locamu):
    """Skips the safe-path rule."""

    rules = _but(checks_safety=False)


class RaisesByLateVectors(CausalOrdering):
    def _add_names(self, names: list[Name], vectors: Sequence[Vector], copy: Copy | None, out: Outbox) -> None:
        self._note(self.streams.raise_to_vectors(vectors))
        super()._add_names(names, vectors, copy, out)


class CountsTheHighest(with_parts(Locamu, ordering=RaisesByLateVectors)):  # type: ignore[misc]
    """The own column by its maximum, which late vectors raise, too."""

    rules = _but(gapless=False, flags_late=False)


class MergesNothing(Locamu):
    """Vectors of further copies are thrown away."""

    rules = _but(merges=False)


class AdoptsWithoutFence(Locamu):
    rules = _but(fenced=False)


class Trims(Locamu):
    rules = _but(whole=False)


class SeesTooLittle(Locamu):
    """Keeps state within two hops only."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        for node in [node for node, distance in self.here.distance.items() if distance > 2]:
            del self.here.column[node]


class SendsInNobodysName(Locamu):
    """Never sends a proxy copy, nor names alone."""

    rules = _but(proxies=False, pushes=False)


class ForgetsItsColumns(Locamu):
    """Loses what it has processed in a crash."""

    durable = tuple(name for name in Locamu.durable if name != "processed")


JUMPS_UNSAFELY = _with("jumps-unsafely", JumpsUnsafely)
COUNTS_THE_HIGHEST = _with("counts-the-highest", CountsTheHighest)
MERGES_NOTHING = _with("merges-nothing", MergesNothing)
ADOPTS_WITHOUT_FENCE = _with("adopts-without-fence", AdoptsWithoutFence)
TRIMS = _with("trims", Trims)
SEES_TOO_LITTLE = _with("sees-too-little", SeesTooLittle)
SENDS_IN_NOBODYS_NAME = _with("sends-in-nobodys-name", SendsInNobodysName)
FORGETS_ITS_COLUMNS = _with("forgets-its-columns", ForgetsItsColumns)
