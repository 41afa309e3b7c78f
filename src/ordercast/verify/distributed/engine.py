"""The judge over rows that nobody has in one place: the stages, in their order, and the verdict.

1. `scan` deals the rows out by message. 2. `intern`, by message, gives numbers to ids and deals the rows out by
receiver. 3. `order`, one task, numbers the messages along one possible execution. 4. `judge_part`, by receiver, runs
the checks. 5. `judge_block` judges what needs all receivers in one place, by key or topic where it can. 6. `tell`, if
anything is wrong, tells the stories. What moves the tables between them is a `TableFlow`: Spark, or in tests this
process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import pyarrow as pa

from ordercast.trace.store import TraceError
from ordercast.verify.distributed.blocks import FOUND, RESULT, FoundInBlock, blocks_of, cycles_in
from ordercast.verify.distributed.by_key import judge_keys_of
from ordercast.verify.distributed.by_queue import judge_queues
from ordercast.verify.distributed.intern import INTERNED, TO_ORDER, intern
from ordercast.verify.distributed.order import order
from ordercast.verify.distributed.part import PartFound, judge_part
from ordercast.verify.distributed.scan import SCANNED, scan
from ordercast.verify.distributed.stories import Asking, Told, only_nodes, tell
from ordercast.verify.distributed.stretches import ORDERED
from ordercast.verify.distributed.wire import unpacked, values
from ordercast.verify.judge import is_told, verdict_of
from ordercast.verify.rows import SeqHole, holes_in_words
from ordercast.verify.tasks import merge
from ordercast.verify.verdict import ASSUMED, EXCUSED, MADE, MISSING, OWED, UNORDERED, WITHOUT_PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ordercast.verify.columns import RunFacts
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.tasks import Partial
    from ordercast.verify.verdict import Verdict, Witness
    from ordercast.verify.witness import Cycles

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
    together = _together(flow, judged, setup, blocks_of(about.checks, found[0].held, setup.cut))
    merged = _merged(setup, about, found, together)
    asked = _asking(about, merged, found, cycles_in(together), names_at)
    stories = _told(flow, to_order, to_parts, setup, asked) if asked.findings else {}
    return verdict_of(about, merged, lambda check, _: stories.get(check, []), witnesses=setup.witnesses)


def _about(setup: Setup, found: list[PartFound], counts: dict[str, int]) -> RunFacts:
    """The parts' facts together."""
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


def _together(flow: TableFlow[F], judged: F, setup: Setup, blocks: dict[str, range]) -> list[FoundInBlock]:
    """Findings of the checks that need the deliveries of all receivers in one place."""
    if not blocks:
        return []
    all_blocks = range(max(mine.stop for mine in blocks.values()))
    rows = flow.where(judged, "block", all_blocks.start, all_blocks.stop - 1)
    frame = flow.grouped(rows, "block", partial(judge_block, setup, blocks), FOUND, values=all_blocks)
    data = values(flow.collected(frame), "data")
    return [msgspec.msgpack.decode(one, type=FoundInBlock) for one in data]


def judge_block(setup: Setup, blocks: dict[str, range], block: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Judge one block, by the check that it belongs to."""
    if not table.num_rows:
        return
    check = next(check for check, mine in blocks.items() if block in mine)
    parts = [unpacked(value)[1] for value in values(table, "data")]
    cap = setup.witnesses
    found = judge_keys_of(parts, cap) if check == "total" else judge_queues(check, parts, cap)
    yield pa.RecordBatch.from_pydict({"block": [RESULT], "data": [msgspec.msgpack.encode(found)]}, schema=FOUND)


def _merged(setup: Setup, about: RunFacts, found: list[PartFound], together: list[FoundInBlock]) -> dict[str, Partial]:
    partials = [part for one in found for part in one.partials] + [one.partial for one in together]
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
    cycles: Cycles,
    names_at: Callable[[list[int]], list[str]],
) -> Asking:
    """Violations to be told, and the receivers whose logs are needed whole for it."""
    told = {check: part.findings for check, part in merged.items() if check in about.checks and is_told(about, part)}
    first = {m: at for one in found for m, at in one.first.items()}
    first_by = {m: by for one in found for m, by in one.first_by.items()}
    receivers: set[int] = set()
    nodes: set[int] = set()
    for check, findings in told.items():
        if (check, 0) in cycles and check in WITHOUT_PLACE:
            receivers.update(cycles[check, 0][1])
            continue
        for finding in findings if check not in ("convergence", "genuine") else ():
            receivers.add(finding[1])
            if check == "total":
                receivers |= {finding[5], *cycles.get((check, finding[2]), ([], []))[1]}
            if check == "prefix":
                receivers.add(finding[2])
            if check == "real-time":
                receivers.add(first_by[finding[2]])
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
    needed = setup.part_of[asked.nodes]
    theirs = flow.where(parts, "to", int(needed.min()), int(needed.max())) if needed.size else parts
    chosen = flow.mapped(theirs, partial(only_nodes, asked.nodes), INTERNED)
    frame = flow.beside(order, "to", chosen, partial(tell, setup, asked), FOUND, values=ONE)
    data = values(flow.collected(frame), "data")
    told = [msgspec.msgpack.decode(one, type=Told) for one in data]
    if len(told) != len(asked.findings):
        raise TraceError(f"{setup.path}: {len(told)} of {len(asked.findings)} stories were told")
    return {one.check: one.stories for one in told}
