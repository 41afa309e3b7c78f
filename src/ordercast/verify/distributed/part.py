"""The fourth stage, by receiver: the checks on the logs of some receivers, with the messages' side of the whole run."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.build import (
    BEFORE_BY_CLOCK,
    DUPLICATE,
    EARLY,
    INVENTED,
    REPUBLISHED,
    about_run,
    first_deliveries,
    last_digests,
    left_by,
    lives_of,
    missing_and_excused,
    not_for_it,
    odd_rows,
    outsiders,
)
from ordercast.verify.columns import Arrays, Columns, Names, RunFacts
from ordercast.verify.distributed.blocks import FOUND, RESULT, TOGETHER, blocks_of
from ordercast.verify.distributed.by_key import keys_for
from ordercast.verify.distributed.by_queue import queues_for
from ordercast.verify.distributed.concerning import share_of
from ordercast.verify.distributed.rows import SomeRows, assembled, entries_of
from ordercast.verify.distributed.setup import AGAIN
from ordercast.verify.kernels.causal import MISSED
from ordercast.verify.kernels.integrity import overtaken
from ordercast.verify.logs import Lives, Logs
from ordercast.verify.members import settle_members
from ordercast.verify.order import Scopes
from ordercast.verify.rows import KIND, SeqHole, holes_in
from ordercast.verify.tasks import BLOCK, Partial, Task, run_task
from ordercast.verify.unordered import unordered_deliveries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.concerning import Share
    from ordercast.verify.distributed.order import Ordered
    from ordercast.verify.distributed.setup import Setup
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.obligations import Owed

_MESSAGES: dict[str, tuple[int, ...]] = {
    "integrity": (), "convergence": (), "fifo": (0, 2), "real-time": (0, 2),
}  # fmt: skip
"""Where in a finding messages stand, as they are numbered here; of other checks, at the beginning."""


class PartFound(msgspec.Struct):
    """The findings of one part. Counts are of its receivers; the rest every part says alike."""

    part: int
    partials: list[Partial]
    counts: dict[str, int]
    about: RunFacts
    assumed: list[str]
    holes: list[SeqHole]
    lacking: int
    held: list[str]
    messages: int
    nodes: list[int]
    """Of each receiver of the run."""
    first: dict[int, int]
    """Of messages that were missed: where they were first delivered."""
    first_by: dict[int, int]
    """Of messages that were overtaken in real time: by whom they were first delivered, by the clock."""


class Side:
    """The receivers' side of some nodes: their logs, what they owed, and what is odd about them."""

    def __init__(
        self,
        setup: Setup,
        ordered: Ordered,
        rows: SomeRows,
        lives: Lives,
        logs: Logs,
        mine: Any,
        hasty: Offsets | None = None,
    ) -> None:
        self.setup = setup
        self.ordered = ordered
        self.rows = rows
        self.lives = lives
        self.logs = logs
        self.hasty: Offsets = np.empty(0, np.int64) if hasty is None else hasty
        """Deliveries that are dated before their publication, as setup.place numbers rows."""
        self.mine = mine[lives.node]
        """Which receivers are judged here."""
        self.owed, self.members, self.assumed = settle_members(
            setup.trace(setup.rare), rows, lives, logs, ordered.duties, ordered.published, setup.asked, self.mine
        )

    def columns(self, about: RunFacts, names: Names) -> Columns:
        """The run as the checks read it, with the logs of these nodes and nobody else's."""
        rows, lives, logs, owed = self.rows, self.lives, self.logs, self.owed
        duties, published = self.ordered.duties, self.ordered.published
        owed.forbidden[np.repeat(~self.mine, np.diff(logs.off))] = 0  # Whether it was for others is not asked here.
        odd = [logs.odd, *(self._in_run(odd) for odd in (not_for_it(owed, logs, lives, rows), self._before_by_clock()))]
        given = {
            **_nothing(),
            **self.ordered.arrays,
            "ev": logs.ev,
            "off": logs.off,
            "seq": rows.seq[logs.entry],
            "node": lives.node,
            "alive": lives.alive,
            "pub": published.pub,
            "missed_off": owed.missed_off,
            "missed": owed.missed,
            "due": owed.due,
            "asked": owed.asked,
            "unordered": unordered_deliveries(rows, lives, logs, duties),
            "odd": np.concatenate(odd),
            "outsiders": self._outsiders(),
        }
        if "first_ns" in self.ordered.arrays:
            given["published_ns"] = published.time_ns
        for name in ("topic", "obliges", "key_off", "keys", "key_topic"):
            given[name] = getattr(duties, name)
        return Columns(about, Arrays(**given), names, self.ordered.past)

    def _in_run(self, odd: Offsets) -> Offsets:
        """Breaches of integrity with the run's numbers for messages."""
        odd[:, 1] = self.ordered.past.messages[odd[:, 1]]
        return odd

    def _before_by_clock(self) -> Any:
        """Deliveries that the second stage found to be dated before their publication, as far as they count."""
        entries = entries_of(self.rows, np.sort(self.hasty))
        at = np.searchsorted(self.logs.entry, entries)
        entries = entries[np.append(self.logs.entry, -1)[at] == entries] if entries.size else entries
        return odd_rows(BEFORE_BY_CLOCK, entries, self.rows.msg[entries], self.lives, self.rows)

    def _outsiders(self) -> Any:
        duties, pub = self.ordered.duties, self.ordered.published.pub
        message = np.where(self.rows.msg < pub.size, self.rows.msg, -1)
        mine = np.zeros(len(self.rows.nodes), bool)
        mine[self.lives.node[self.mine]] = True
        return outsiders(self.rows, message, duties, self.members, self.lives.node[pub], mine)[0]

    def about(self) -> RunFacts:
        """Facts of the run besides its arrays; the same in every part, but for counts."""
        about = about_run(self.setup.trace(self.setup.rare), self.rows, self.ordered.duties, self._scopes())
        about.complete = self.setup.asked.is_complete(self.setup.trace(self.setup.rare))
        about.one_clock = self.setup.dated
        about.left = left_by(self.rows, self.lives, self.setup.manifest)
        about.asks_real_time = "real-time" in self.ordered.about.held
        about.digests = last_digests(self.rows, self.lives)
        about.claimed = [*about.claimed, *["convergence"] * bool(about.digests)]
        return about

    def _scopes(self) -> Scopes:
        return Scopes(*self.ordered.about.scopes)


def _nothing() -> dict[str, Any]:
    none = np.empty(0, np.int32)
    empty: dict[str, Any] = {field.name: none for field in fields(Arrays)}
    return {
        **empty,
        "outsiders": none.reshape(0, 3),
        **dict.fromkeys(("published_ns", "first_ns"), none.astype(np.int64)),
    }


def judge_part(setup: Setup, part: int, rows: pa.Table, order: pa.Table) -> Iterator[pa.RecordBatch]:
    """Judge the receivers of one part: what was found, and what their total order needs to be judged by key."""
    mine = setup.part_of == part
    share = share_of(setup, rows, order, mine)
    ordered = share.ordered
    some = assembled(setup, share.rows, mine)
    lives = lives_of(some)
    logs = _logs(some, lives, ordered, share.first_met, mine)
    side = Side(setup, ordered, some, lives, logs, mine, share.hasty)
    names = Names(pa.array([]), pa.array(setup.nodes.names, pa.string()), pa.array([]), pa.array([]))
    columns = side.columns(side.about(), names)
    yield _row(RESULT, msgspec.msgpack.encode(_found(side, columns, part, share.first_met.size)))
    yield from _together(setup, share, columns)


def _logs(rows: SomeRows, lives: Lives, ordered: Ordered, first_met: Any, mine: Any) -> Logs:
    """As build does it for a whole run. What nobody published is numbered by where it was first delivered."""
    numbers = ordered.past.messages
    messages = numbers.size
    entry = rows.of_kind("publish", "deliver")
    entry = entry[rows.msg[entry] >= 0]
    strange = rows.msg[entry] >= messages
    invented, entry = entry[strange], entry[~strange]
    message = rows.msg[entry]
    ev = np.where(rows.kind[entry] == KIND["publish"], ~message, message).astype(np.int32)
    entry, ev, off, again = first_deliveries(entry, ev, lives, messages)
    republished = np.flatnonzero(rows.kind == KIND["publish"] + AGAIN)
    early = ordered.early[mine[lives.node[ordered.early[:, 1]]]]
    odd = [
        odd_rows(INVENTED, invented, ordered.messages + first_met[rows.msg[invented] - messages], lives, rows),
        odd_rows(REPUBLISHED, republished, numbers[rows.msg[republished]], lives, rows),
        odd_rows(DUPLICATE, again, numbers[rows.msg[again]], lives, rows),
        np.concatenate((np.full((len(early), 1), EARLY), early), axis=1).astype(np.int64),
    ]
    return Logs(ev, off, entry, np.empty(0, np.int64), np.concatenate(odd), pa.array([], pa.string()))


def _found(side: Side, columns: Columns, part: int, strangers: int) -> PartFound:
    holes, lacking = _holes(side)
    partials = _partials(side, columns, part)
    missed = [finding[0] for partial in partials if partial.check == "agreement" for finding in partial.findings]
    hurried = [finding[2] for partial in partials if partial.check == "real-time" for finding in partial.findings]
    number = side.ordered.past.messages
    return PartFound(
        part=part,
        messages=side.ordered.messages,
        nodes=side.lives.node.tolist(),
        partials=[_in_run(partial, number) for partial in partials],
        first={int(number[m]): int(side.ordered.first[m]) for m in missed},
        first_by={int(number[m]): int(columns.arrays.first_by[m]) for m in hurried},
        counts=_counts(side.rows, side.owed, columns, number.size + strangers),
        about=columns.about,
        assumed=side.assumed,
        holes=holes,
        lacking=lacking,
        held=side.ordered.about.held,
    )


def _holes(side: Side) -> tuple[list[SeqHole], int]:
    """Which of the nodes that are judged here lack rows. Of the others, only a few rows are here."""
    nodes = np.unique(side.lives.node[side.mine])
    if not nodes.size:
        return [], 0
    first, last = int(nodes[0]), int(nodes[-1]) + 1
    begin, end = side.rows.off[first], side.rows.off[last]
    names = side.rows.nodes[first:last]
    return holes_in(side.rows.seq[begin:end].astype(np.int64), side.rows.off[first : last + 1] - begin, names)


def _counts(rows: SomeRows, owed: Owed, columns: Columns, messages: int) -> dict[str, int]:
    waited = overtaken(rows.kind, rows.msg, rows.off, messages, KIND["receive"], KIND["deliver"])
    missing, excused = missing_and_excused(columns.arrays, columns.about, owed)
    return {
        "made": owed.made,
        "missing": missing,
        "excused": excused,
        "waited": int(waited),
        "unordered": int(columns.arrays.unordered.sum()),
        "says unordered": int(columns.arrays.unordered.size > 0),
        "sends": int(_published(rows, columns.arrays.messages).sum()),
    }


def _published(rows: SomeRows, messages: int) -> Any:
    """Of the rows about a packet: which are about a message that was published."""
    message = rows.msg[rows.of_kind("send", "receive")]
    return (message >= 0) & (message < messages)


def _partials(side: Side, columns: Columns, part: int) -> list[Partial]:
    """The checks of this part. What both causal checks ask alike is answered once."""
    cap = side.setup.witnesses
    receivers = np.flatnonzero(side.mine)
    first, last = (int(receivers[0]), int(receivers[-1]) + 1) if receivers.size else (0, 0)
    partials = []
    for check in columns.about.checks:
        if check in TOGETHER:
            continue
        if check in ("fifo", "causal", "optimistic-causal"):
            if check in side.ordered.about.held:
                blocks = range(first, last, BLOCK)
                partials += [run_task(columns, Task(check, b, min(b + BLOCK, last)), cap=cap) for b in blocks]
        elif check not in ("agreement", "real-time") or check in side.ordered.about.held:
            found = run_task(columns, Task(check, 0, 0), cap=cap)
            if check == "genuine":  # Whether anybody recorded a send, only all parts together know.
                found.deliveries = int((columns.arrays.ev >= 0).sum())
            if check == "convergence" and part:  # The first part tells which differ; all of them count deliveries.
                found = Partial(check, found.deliveries, 0, [])
            partials.append(found)
    return partials


def _in_run(partial: Partial, number: Ints) -> Partial:
    """The findings with the run's numbers for messages."""
    places = _MESSAGES.get(partial.check, (0,))

    def told(place: int, value: int) -> int:
        if place in places:
            return int(number[value])
        if place == 2 and partial.check in ("causal", "optimistic-causal") and value >= MISSED:
            return MISSED + int(number[value - MISSED])
        return value

    findings = [tuple(told(i, value) for i, value in enumerate(finding)) for finding in partial.findings]
    return Partial(partial.check, partial.deliveries, partial.violations, findings)


def _together(setup: Setup, share: Share, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Columns, by block, for the checks that are not decided receiver by receiver."""
    for check, blocks in blocks_of(columns.about.checks, share.ordered.about.held, setup.cut).items():
        arrays, numbers = columns.arrays, share.numbers
        rows = keys_for(arrays, numbers, blocks) if check == "total" else queues_for(arrays, numbers, check, blocks)
        for block, data in rows:
            yield _row(block, data)


def _row(block: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"block": [block], "data": [data]}, schema=FOUND)


__all__ = ["PartFound", "Side", "judge_part"]
