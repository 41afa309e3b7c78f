"""The judge over rows that nobody has in one place: the stages, in their order, and the verdict.

1. `scan` deals the rows out by message. 2. `intern`, by message, gives numbers to ids and deals the rows out by
receiver. 3. `order`, one task, numbers the messages along one possible execution. 4. `judge_part`, by receiver, runs
the checks. 5. `judge_block`, by key, judges total order. 6. `tell`, if anything is wrong, tells the stories. What moves
the tables between them is a `TableFlow`: Spark, or in tests this process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import pyarrow as pa

from ordercast.trace.store import TraceError
from ordercast.verify.distributed.by_key import FoundByKey, judge_block
from ordercast.verify.distributed.intern import INTERNED, TO_ORDER, intern
from ordercast.verify.distributed.order import ORDERED, order
from ordercast.verify.distributed.part import FOUND, JUDGED, RESULT, PartFound, judge_part
from ordercast.verify.distributed.scan import SCANNED, scan
from ordercast.verify.distributed.stories import Asking, Told, only_nodes, tell
from ordercast.verify.distributed.wire import values
from ordercast.verify.judge import is_told, verdict_of
from ordercast.verify.rows import SeqHole, holes_in_words
from ordercast.verify.tasks import merge
from ordercast.verify.verdict import ASSUMED, EXCUSED, MADE, MISSING, OWED, UNORDERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ordercast.verify.columns import RunFacts
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.tasks import Partial
    from ordercast.verify.verdict import Verdict, Witness

    Batches = Iterable[pa.RecordBatch]
    Scanning = Callable[[Setup, Batches], Iterator[pa.RecordBatch]]

F = TypeVar("F")
ONE = range(TO_ORDER, TO_ORDER + 1)
"""The group of all that the one task needs which orders the messages, and the one that tells stories."""
_NEVER = (1 << 63) - 1


class TableFlow(Protocol[F]):
    """Moves tables between stages. A frame is a table that is somewhere, in pieces."""

    def mapped(self, frame: F, stage: Callable[[Batches], Iterator[pa.RecordBatch]], schema: pa.Schema) -> F:
        """`stage` on the rows of every piece."""

    def grouped(
        self,
        frame: F,
        by: str,
        stage: Callable[[int, pa.Table], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
        *,
        values: range,
    ) -> F:
        """`stage` on all rows with the same value of `by`, once for each of `values`, also if it has no rows."""

    def beside(
        self,
        frame: F,
        by: str,
        everywhere: F,
        stage: Callable[[int, pa.Table, pa.Table], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
        *,
        values: range,
    ) -> F:
        """The same, and every group gets all rows of `everywhere` too."""

    def where(self, frame: F, column: str, least: int, most: int) -> F:
        """The rows whose value lies between these, both included."""

    def kept(self, frame: F) -> F:
        """A frame that is not worked out again when it is used again."""

    def collected(self, frame: F) -> pa.Table:
        """All rows, here."""


class WholeRunError(Exception):
    """The run is held to checks that look at it as a whole."""

    def __init__(self, checks: list[str]) -> None:
        super().__init__(", ".join(checks))
        self.checks = checks


def judge(
    flow: TableFlow[F], rows: F, setup: Setup, counts: dict[str, int], names_at: Callable[[list[int]], list[str]],
    scanning: Scanning = scan,
) -> Verdict:  # fmt: skip
    """The verdict on one run: the same as the judge in one process gives.

    `rows` have the columns that `scanning` reads. `counts` are the events and deliveries of the run. `names_at` finds
    the messages of rows, by setup.place.
    """
    dealt = flow.mapped(rows, partial(scanning, setup), SCANNED)
    buckets, parts = range(setup.cut.buckets), range(setup.cut.parts)
    interned = flow.kept(flow.grouped(dealt, "bucket", partial(intern, setup), INTERNED, values=buckets))
    to_order = flow.where(interned, "to", TO_ORDER, TO_ORDER)
    ordered = flow.kept(flow.grouped(to_order, "to", partial(order, setup), ORDERED, values=ONE))
    to_parts = flow.where(interned, "to", 0, setup.cut.parts)
    judged = flow.kept(flow.beside(to_parts, "to", ordered, partial(judge_part, setup), FOUND, values=parts))
    results = values(flow.collected(flow.where(judged, "block", RESULT, RESULT)), "data")
    found = sorted((msgspec.msgpack.decode(data, type=PartFound) for data in results), key=lambda one: one.part)
    about = _about(setup, found, counts)
    _expect_by_receiver(about, found[0].held)
    keyed = flow.where(judged, "block", 0, setup.cut.key_blocks)
    by_key = _by_key(flow, keyed, setup) if "total" in found[0].held and "total" in about.checks else []
    merged = _merged(setup, about, found, by_key)
    asked = _asking(about, merged, found, by_key, names_at)
    stories = _told(flow, to_order, to_parts, setup, asked) if asked.findings else {}
    return verdict_of(about, merged, lambda check, _: stories.get(check, []), witnesses=setup.witnesses)


def _about(setup: Setup, found: list[PartFound], counts: dict[str, int]) -> RunFacts:
    """What the parts say together."""
    about = found[0].about
    total = {name: sum(one.counts[name] for one in found) for name in found[0].counts}
    holes: list[SeqHole] = [hole for one in found for hole in one.holes]
    about.holes = holes_in_words(holes, sum(one.lacking for one in found))
    told = "; ".join([setup.assumed] * bool(setup.assumed) + found[0].assumed)
    about.facts = {
        **({ASSUMED: told} if told else {}),
        "events": counts["events"],
        "nodes": len(setup.nodes.names),
        "messages": found[0].messages,
        "deliveries": counts["deliveries"],
        OWED: total["made"] + total["missing"] + total["excused"],
        MADE: total["made"],
        MISSING: total["missing"],
        EXCUSED: total["excused"],
        "holes": about.holes or 0,
        "faults fired": sum(setup.manifest.faults.values()) if setup.manifest else 0,
        "deliveries that waited": total["waited"],
    }
    about.sends_recorded = total["sends"]
    if total["says unordered"]:
        about.facts[UNORDERED] = total["unordered"]
    return about


def _expect_by_receiver(about: RunFacts, held: list[str]) -> None:
    beyond = [check for check in about.checks if check not in JUDGED and (check in held or check in about.claimed)]
    if beyond:
        raise WholeRunError(beyond)


def _by_key(flow: TableFlow[F], keyed: F, setup: Setup) -> list[FoundByKey]:
    blocks = range(setup.cut.key_blocks)
    frame = flow.grouped(keyed, "block", partial(judge_block, setup), FOUND, values=blocks)
    data = values(flow.collected(frame), "data")
    return [msgspec.msgpack.decode(one, type=FoundByKey) for one in data]


def _merged(setup: Setup, about: RunFacts, found: list[PartFound], by_key: list[FoundByKey]) -> dict[str, Partial]:
    partials = [part for one in found for part in one.partials] + [one.partial for one in by_key]
    for part in partials:
        if part.check == "genuine" and not about.sends_recorded:
            part.deliveries = 0
    if about.holes:
        partials = [part for part in partials if part.check == "integrity"]
    return merge(partials, cap=setup.witnesses)


def _asking(
    about: RunFacts,
    merged: dict[str, Partial],
    found: list[PartFound],
    by_key: list[FoundByKey],
    names_at: Callable[[list[int]], list[str]],
) -> Asking:
    """What has to be told, and whose logs are needed whole for it."""
    told = {check: part.findings for check, part in merged.items() if check in about.checks and is_told(about, part)}
    cycles = {key: cycle for one in by_key for key, cycle in one.cycles.items()}
    first = {m: at for one in found for m, at in one.first.items()}
    receivers: set[int] = set()
    nodes: set[int] = set()
    for check, findings in told.items():
        for finding in findings if check not in ("convergence", "genuine") else ():
            receivers.add(finding[1])
            if check == "total":
                receivers |= {finding[5], *cycles.get(finding[2], ([], []))[1]}
            if check == "agreement" and first[finding[0]] < _NEVER:
                nodes.add(first[finding[0]] >> 32)
    nodes |= {found[0].nodes[receiver] for receiver in receivers if receiver >= 0}
    invented, told["integrity"] = _renumbered(told.get("integrity", []), found[0].messages)
    if not told["integrity"]:
        del told["integrity"]
    return Asking(told, cycles, names_at(invented) if invented else [], sorted(nodes))


def _renumbered(findings: list[tuple[int, ...]], messages: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """Messages that nobody published are numbered by where they came first; here they get the next small numbers."""
    places = sorted({finding[0] - messages for finding in findings if finding[0] >= messages})
    number = {messages + place: messages + i for i, place in enumerate(places)}
    return places, [(number.get(finding[0], finding[0]), *finding[1:]) for finding in findings]


def _told(flow: TableFlow[F], order: F, parts: F, setup: Setup, asked: Asking) -> dict[str, list[Witness]]:
    chosen = flow.mapped(parts, partial(only_nodes, asked.nodes), INTERNED)
    frame = flow.beside(order, "to", chosen, partial(tell, setup, asked), FOUND, values=ONE)
    data = values(flow.collected(frame), "data")
    told = [msgspec.msgpack.decode(one, type=Told) for one in data]
    if len(told) != len(asked.findings):
        raise TraceError(f"{setup.path}: {len(told)} of {len(asked.findings)} stories were told")
    return {one.check: one.stories for one in told}
