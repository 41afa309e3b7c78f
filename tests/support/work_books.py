"""Judges shared work of real processes from what they wrote down themselves, outside the product (SHW-G1 to SHW-G4).

The books of publishers, workers and the undertaker are `tests/support/work_process.py`; those of brokers are the
driver's: when each was out of the tree. Times are of one machine's monotonic clock. A line `take` is written after a
unit was handed out, a line `said` before it is called done, so that what is found out of order was out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

FOREVER = 1 << 62
_GRACE_NS = 3_000_000_000
"""After the end of a fault: what it has begun is over by then."""
_ON_ITS_WAY_NS = 250_000_000
"""So long after it was acknowledged a publication may not have come to a copy that is in the tree."""
_CLOCKS_NS = 50_000_000
"""What leaders write has the time of another clock."""
_WRITTEN_NS = 1_000_000_000
"""So long after a worker has called a unit done a leader that is there has written it down."""


@dataclass(frozen=True)
class Line:
    """One line of a book."""

    at: int
    who: str
    word: str
    unit: str = "-"
    keys: tuple[str, ...] = ()


@dataclass
class Holding:
    """A unit in the hands of one life of a worker, however often it tried."""

    unit: str
    keys: tuple[str, ...]
    by: str
    began: int
    ended: int = FOREVER
    said: int = FOREVER
    confirmed: int = FOREVER
    given_up: bool = False
    """It was told that another has it, was killed, or left."""


@dataclass
class Ask:
    """A publication, as its publisher wrote it down."""

    unit: str
    keys: tuple[str, ...]
    by: str
    at: int
    safe: int = FOREVER
    """When it was acknowledged."""


@dataclass(frozen=True)
class Problem:
    """A promise that was not kept; and the documented exception, if the facts show that it applies."""

    kind: str
    what: str
    excuse: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" + (f" ({self.excuse})" if self.excuse else "")


@dataclass
class Facts:
    """The driver's knowledge: which brokers keep what, and when each of them was out of the tree."""

    copies: Mapping[str, tuple[str, ...]]
    """By topic."""
    topic: str
    record: str
    """The topic on which the group writes down what is done."""
    out: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    kept: frozenset[str] | None = None
    """Units that the history of the topic has in the end; None: it could not be read."""
    written: dict[str, int] = field(default_factory=dict)
    """When a leader first wrote down that the unit is done; of those that the history has."""

    def none_there(self, topic: str, start: int, end: int) -> str:
        """When no copy of the topic was in the tree within that time; an empty text if one always was."""
        spans = [(start, end)]
        for broker in self.copies[topic]:
            spans = [
                (max(a, c), min(b, d)) for a, b in spans for c, d in self.out.get(broker, ()) if max(a, c) < min(b, d)
            ]
        if not spans:
            return ""
        a, b = spans[0]
        return f"no copy of {topic} was in the tree for {(b - a) / 1e9:.2f} s, {(a - start) / 1e9:.2f} s later"

    def calm(self, start: int, end: int) -> bool:
        """All brokers were in the tree all the time, and for a while before."""
        return not any(a < end and start - _GRACE_NS < b for spans in self.out.values() for a, b in spans)


def read_books(directory: Path) -> list[Line]:
    """All lines of all books, in the order of time; a line that its writer was killed in is none."""
    lines = []
    for path in sorted(directory.glob("*.book")):
        for text in path.read_text().split("\n")[:-1]:
            at, word, unit, keys = text.split(" ")
            lines.append(Line(int(at), path.stem, word, unit, () if keys == "-" else tuple(keys.split(","))))
    return sorted(lines, key=lambda line: line.at)


class WorkBooks:
    """Everything that was written down, and what is wrong with it."""

    def __init__(self, lines: Iterable[Line], facts: Facts) -> None:
        self.facts = facts
        self.asked: dict[str, Ask] = {}
        self.holdings: list[Holding] = []
        self.dead: set[str] = set()
        self.hearts: dict[str, list[int]] = {}
        self.end = 0
        self._open: dict[tuple[str, str], Holding] = {}
        self._ended: set[str] = set()
        for line in lines:
            self.end = max(self.end, line.at)
            self._note(line)

    def _note(self, line: Line) -> None:
        held = self._open.get((line.who, line.unit))
        match line.word:
            case "ask":
                self.asked[line.unit] = Ask(line.unit, line.keys, line.who, line.at)
            case "safe":
                self.asked[line.unit].safe = line.at
            case "dead":
                self.dead.add(line.unit)
            case "heart":
                self.hearts.setdefault(line.who, []).append(line.at)
            case "take" if held is None or held.ended != FOREVER:
                holding = Holding(line.unit, line.keys, line.who, line.at)
                self._open[line.who, line.unit] = holding
                self.holdings.append(holding)
            case "said" if held is not None:
                held.said = held.ended = line.at
            case "done" if held is not None:
                held.confirmed = line.at
            case "lost" if held is not None:
                held.given_up = True
                held.ended = min(held.ended, line.at)
            case "killed" | "left":
                self._ends(line.unit if line.word == "killed" else line.who, line.at)

    def _ends(self, life: str, at: int) -> None:
        """What it had not called done for good may be begun again."""
        self._ended.add(life)
        for (who, _), held in self._open.items():
            if who == life and held.confirmed == FOREVER:
                held.given_up = True
                held.ended = min(held.ended, at)

    # The judgement

    def owed(self) -> list[Ask]:
        return [ask for ask in self.asked.values() if ask.safe != FOREVER]

    def undone(self) -> list[Ask]:
        """Acknowledged, not called done by anybody, and not buried."""
        said = {held.unit for held in self.holdings if held.said != FOREVER and not self._in_vain(held)}
        return [ask for ask in self.owed() if ask.unit not in said and ask.unit not in self.dead]

    def _in_vain(self, held: Holding) -> bool:
        """It was told that it was given up, so another one does it; unless its word was written down (SHW-G4)."""
        written = -_CLOCKS_NS < self.facts.written.get(held.unit, FOREVER) - held.said < _WRITTEN_NS
        return held.given_up and held.confirmed == FOREVER and held.by in self._living() and not written

    def _living(self) -> set[str]:
        """Workers that were there at the end."""
        return {who for who, beats in self.hearts.items() if self.end - beats[-1] < _GRACE_NS}

    def problems(self) -> list[Problem]:
        return [
            *self._gone(), *self._undone(), *self._counted(), *self._twice(), *self._out_of_order(),
            *self._at_one_time(),
        ]  # fmt: skip

    def _gone(self) -> list[Problem]:
        """ARC-G5: what was acknowledged is in the history, done or not."""
        kept = self.facts.kept
        if kept is None:
            return [Problem("no history", "it could not be read")]
        found = []
        for ask in self.owed():
            if ask.unit not in kept:
                excuse = self.facts.none_there(self.facts.topic, ask.at, ask.safe + _ON_ITS_WAY_NS)
                found.append(Problem("gone", f"{ask.unit} is not in the history", excuse))
        return found

    def _undone(self) -> list[Problem]:
        found = []
        kept, living = self.facts.kept, self._living()
        for ask in self.undone():
            if kept is not None and ask.unit not in kept:
                continue  # It is gone.
            if living:
                found.append(Problem("not handed out", f"{ask.unit}, though {min(living)} waits for work"))
            else:
                found.append(Problem("nobody there", ask.unit))
        return found

    def _counted(self) -> list[Problem]:
        """A leader writes down as done what somebody has called done before, or what is buried; nothing else."""
        said = self._first_said()
        return [
            Problem("counted as done, and nobody had said so", unit)
            for unit, at in self.facts.written.items()
            if said.get(unit, FOREVER) > at + _CLOCKS_NS and unit not in self.dead
        ]

    def _first_said(self) -> dict[str, int]:
        said: dict[str, int] = {}
        for held in self.holdings:
            said[held.unit] = min(said.get(held.unit, FOREVER), held.said)
        return said

    def _twice(self) -> list[Problem]:
        found = []
        for unit, times in self._by_unit().items():
            for earlier, later in pairwise(times):
                told = f"{unit}: {earlier.by}, then {later.by}"
                if earlier.confirmed != FOREVER:  # SHW-13: the record that says so was written in between.
                    excuse = self.facts.none_there(self.facts.record, earlier.said, earlier.confirmed)
                    found.append(Problem("done for ever and handed out again", told, excuse))
                elif not earlier.given_up:
                    found.append(Problem("handed out twice although its holder lives", told))
                elif self._nothing_was_wrong(earlier, later):
                    found.append(Problem("handed out twice although nothing was wrong", told))
        return found

    def _nothing_was_wrong(self, earlier: Holding, later: Holding) -> bool:
        """Its holder was heard of until it was given up, and no broker was away."""
        lived = self._beats(earlier.by, earlier.began, min(later.began, earlier.ended))
        return lived and earlier.by not in self._ended and self.facts.calm(earlier.began, later.began)

    def _beats(self, who: str, start: int, end: int) -> bool:
        """Whether that worker was heard of all the time."""
        beats = [start, *(at for at in self.hearts.get(who, ()) if start < at < end), end]
        return all(b - a < _GRACE_NS // 3 for a, b in pairwise(beats))

    def _by_unit(self) -> dict[str, list[Holding]]:
        units: dict[str, list[Holding]] = {}
        for held in self.holdings:
            units.setdefault(held.unit, []).append(held)
        return units

    def _out_of_order(self) -> list[Problem]:
        """Whatever its publisher published before it with a key of it was called done, or is buried."""
        said = self._first_said()
        missing = {ask.unit for ask in self.undone()}
        found = []
        before: dict[str, list[str]] = {}
        lanes: dict[tuple[str, str], list[str]] = {}
        for ask in sorted(self.asked.values(), key=lambda ask: ask.at):
            before[ask.unit] = [unit for key in ask.keys for unit in lanes.get((ask.by, key), ())]
            if ask.safe != FOREVER or ask.unit in said:  # What was never called safe may not exist.
                for key in ask.keys:
                    lanes.setdefault((ask.by, key), []).append(ask.unit)
        for held in self.holdings:
            found += [
                Problem("out of order", f"{held.by} has {held.unit} before {unit} is done")
                for unit in dict.fromkeys(before.get(held.unit, ()))
                if said.get(unit, FOREVER) > held.began and unit not in self.dead and unit not in missing
            ]
        return found

    def _at_one_time(self) -> list[Problem]:
        """A key is in one hand, and one unit of it, unless the holder was given up."""
        lanes: dict[str, list[Holding]] = {}
        for held in self.holdings:
            for key in held.keys:
                lanes.setdefault(key, []).append(held)
        found = []
        for key, times in lanes.items():
            open_ones: list[Holding] = []
            for held in times:
                open_ones = [one for one in open_ones if one.ended > held.began]
                found += [
                    Problem("two at one time", f"{key}: {one.by} has {one.unit}, {held.by} has {held.unit}")
                    for one in open_ones
                    if not one.given_up and one.unit not in self.dead
                ]
                open_ones.append(held)
        return found
