"""From a loaded trace to columns: numbers for names, logs by receiver, obligations decided, odd rows noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.trace.schema import INFO_END
from ordercast.verify import obligations
from ordercast.verify.arrow import taken
from ordercast.verify.columns import BIT, Arrays, Columns, Names, RunFacts, StateDigest, left_to_give
from ordercast.verify.duties import Duties, duties_of
from ordercast.verify.kernels.integrity import overtaken, repeated
from ordercast.verify.kernels.realize import delivered_by, publish_order, renumbered
from ordercast.verify.logs import Lives, Logs
from ordercast.verify.members import published_in, settle_members
from ordercast.verify.order import affecting, happened_before, scopes_of
from ordercast.verify.rows import KIND, Rows, digests, given_up, lost_state, sorted_rows
from ordercast.verify.unordered import unordered_deliveries
from ordercast.verify.verdict import ASSUMED, EXCUSED, MADE, MISSING, OWED, UNORDERED

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest
    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.members import Publications
    from ordercast.verify.order import Scopes

NO_TIME = np.iinfo(np.int64).max
# Kinds of breach in Arrays.odd.
INVENTED, REPUBLISHED, DUPLICATE, EARLY, NOT_FOR_IT, BEFORE_BY_CLOCK = range(6)


def prepare(trace: LoadedTrace, asked: JudgeOptions) -> Columns:
    """Everything the checks need to know of `trace`."""
    manifest = trace.manifest
    groups = asked.groups_of(trace)
    named = set(manifest.nodes) if manifest else set()
    rows = sorted_rows(trace, named.union(*(groups or {}).values(), _destinations(trace.table)))
    lives = lives_of(rows)
    logs = _logs(rows, lives)
    duties = duties_of(trace, rows, logs.publication, asked)
    scopes = scopes_of(manifest, trace.path, asked.scope, asked.order_scope)
    published = published_in(rows, lives, logs, dated=asked.is_dated(trace))
    pub = published.pub
    affects = affecting(asked.causes, rows.nodes, lives.node, pub)
    past, order = happened_before(logs.ev, logs.off, duties, scopes, published, affects)
    owed, member_nodes, assumed = settle_members(trace, rows, lives, logs, duties, published, asked)
    odd = np.concatenate((logs.odd, not_for_it(owed, logs, lives, rows), before_by_clock(rows, logs, lives, published)))
    outside, sends = outsiders(
        rows, _messages_of(rows, logs), duties, member_nodes, lives.node[pub] if pub.size else pub
    )
    arrays = Arrays(
        ev=logs.ev,
        off=logs.off,
        seq=rows.seq[logs.entry],
        node=lives.node,
        alive=lives.alive,
        pub=pub,
        pub_seq=rows.seq[logs.publication],
        topic=duties.topic,
        obliges=duties.obliges,
        key_off=duties.key_off,
        keys=duties.keys,
        key_topic=duties.key_topic,
        missed_off=owed.missed_off,
        missed=owed.missed,
        due=owed.due,
        asked=owed.asked,
        copied=_copied(logs, lives, left_by(rows, lives, manifest) if manifest and not manifest.uniform else None),
        unordered=unordered_deliveries(rows, lives, logs, duties),
        **_moments(rows, logs, duties, dated=published.time_ns is not None),
        odd=odd,
        outsiders=outside,
        **order,
    )
    about = about_run(trace, rows, duties, scopes)
    about.complete = asked.is_complete(trace)
    about.one_clock = asked.is_dated(trace)
    about.left = left_by(rows, lives, manifest)
    missing, excused = missing_and_excused(arrays, about, owed)
    about.facts = {
        **_facts(trace, rows, duties.topic.size, assumed),
        OWED: owed.made + missing + excused, MADE: owed.made, MISSING: missing, EXCUSED: excused,
    }  # fmt: skip
    if arrays.unordered.size:
        about.facts[UNORDERED] = int(arrays.unordered.sum())
    about.asks_real_time = bool((duties.obliges & BIT["real-time"]).any())
    about.sends_recorded = sends
    about.digests = last_digests(rows, lives)
    about.claimed += ["convergence"] * bool(about.digests)
    nodes = pa.array(rows.nodes, pa.string())
    names = Names(logs.names, nodes, pa.array(duties.topics, pa.string()), duties.key_names)
    return Columns(about, arrays, names, past)


def about_run(trace: LoadedTrace, rows: Rows, duties: Duties, scopes: Scopes) -> RunFacts:
    manifest = trace.manifest
    return RunFacts(
        run=trace.run,
        path=trace.path,
        protocol=manifest.protocol if manifest else "foreign trace",
        guarantee=manifest.guarantee if manifest else "mixed",
        scope=scopes.causal,
        order_scope=scopes.order,
        uniform=manifest is None or manifest.uniform,
        checks=duties.checks,
        claimed=duties.claimed,
        holes=rows.holes,
        complete=None,
        one_clock=False,
        facts={},
    )


def left_by(rows: Rows, lives: Lives, manifest: Manifest | None) -> list[int]:
    """The receivers whose last word is a leave, not the end of the run, and that take along what they had."""
    if manifest is not None and manifest.leavers_pass_on:
        return []
    entries = rows.of_kind("join", "leave")
    ended = set(rows.info(INFO_END)[0].tolist()) if entries.size else set()
    receivers = np.searchsorted(lives.entry_off, entries, side="right") - 1
    away = {}
    for entry, receiver in zip(entries.tolist(), receivers.tolist(), strict=True):
        away[receiver] = rows.kind[entry] == KIND["leave"] and entry not in ended
    return sorted(receiver for receiver, gone in away.items() if gone)


def _destinations(table: pa.Table) -> set[str]:
    return {name for name in pc.unique(pc.list_flatten(table.column("dst"))).to_pylist() if name is not None}


def lives_of(rows: Rows) -> Lives:
    """The receivers of a run: its nodes, and their lives after they had lost their state."""
    lost = lost_state(rows)
    node = np.concatenate((np.arange(len(rows.nodes)), rows.node_of(lost)))
    begins = np.concatenate((rows.off[:-1], lost))
    later = np.concatenate((np.zeros(len(rows.nodes), int), np.ones(lost.size, int)))
    order = np.lexsort((begins, later, node))
    node, begins, later = node[order], begins[order], later[order]
    entry_off = np.concatenate((begins, [rows.seq.size])).astype(np.int64)
    fell = np.full(node.size, -1, np.int64)
    followed = np.flatnonzero(later[1:] == 1)  # The next receiver is this node's next life: this one ended.
    fell[followed] = entry_off[followed + 1]
    falls = np.union1d(rows.of_kind("crash", "recover"), given_up(rows))
    receiver = np.searchsorted(entry_off, falls, side="right") - 1
    for entry, column in zip(falls, receiver, strict=True):
        back = rows.kind[entry] == KIND["recover"]
        ended = entry_off[column + 1] if column in followed else -1
        fell[column] = ended if back else entry
    life = np.arange(node.size) - np.searchsorted(node, node)
    return Lives(node.astype(np.int32), life.astype(np.int32), entry_off, (fell < 0).astype(np.uint8), fell)


def _logs(rows: Rows, lives: Lives) -> Logs:
    """Take out what cannot be ordered (second publications and deliveries, inventions) and number the rest."""
    entry = rows.of_kind("publish", "deliver")
    code = rows.msg[entry]
    publishes = rows.kind[entry] == KIND["publish"]
    codes, first = np.unique(code[publishes], return_index=True)
    original = np.zeros(entry.size, bool)
    original[np.flatnonzero(publishes)[first]] = True
    published = np.zeros(len(rows.msg_names), bool)
    published[codes] = True
    keep = original | (~publishes & published[code]) if entry.size else original
    republished, invented = entry[publishes & ~original], entry[~publishes & ~published[code]] if entry.size else entry
    entry = entry[keep]
    ev = np.where(publishes[keep], ~code[keep], code[keep]).astype(np.int32)
    entry, ev, off, duplicate = first_deliveries(entry, ev, lives, len(rows.msg_names))
    number, early = publish_order(ev, off, len(rows.msg_names))
    made_up, made_up_number = _as_first_met(rows.msg[invented])
    number[made_up] = codes.size + np.arange(made_up.size)
    publication = np.empty(codes.size, np.int64)
    publication[number[~ev[ev < 0]]] = entry[ev < 0]
    by_number = np.concatenate((np.empty(codes.size, np.int64), made_up))
    by_number[: codes.size] = rows.msg[publication]
    odd = [
        odd_rows(INVENTED, invented, codes.size + made_up_number, lives, rows),
        odd_rows(REPUBLISHED, republished, number[rows.msg[republished]], lives, rows),
        odd_rows(DUPLICATE, duplicate, number[rows.msg[duplicate]], lives, rows),
        odd_rows(EARLY, entry[early != 0], number[rows.msg[entry[early != 0]]], lives, rows),
    ]
    names = taken(rows.msg_names, by_number)
    return Logs(renumbered(ev, number), off, entry, publication, np.concatenate(odd), names)


def first_deliveries(entry: Offsets, ev: Ints, lives: Lives, messages: int) -> tuple[Offsets, Ints, Offsets, Offsets]:
    """The logs without what a receiver had delivered before: their entries, events and offsets; and what went."""
    again = repeated(ev, np.searchsorted(entry, lives.entry_off), messages) != 0
    if not again.any():
        return entry, ev, np.searchsorted(entry, lives.entry_off).astype(np.int64), entry[:0]
    kept = entry[~again]
    return kept, ev[~again], np.searchsorted(kept, lives.entry_off).astype(np.int64), entry[again]


def _as_first_met(codes: Ints) -> tuple[Ints, Offsets]:
    """The different codes in the order in which they first come, and the number of each entry's."""
    found, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    return found[order], place[inverse]


def odd_rows(kind: int, entries: Offsets, messages: Any, lives: Lives, rows: Rows) -> Offsets:
    """Breaches of integrity as rows of Arrays.odd."""
    receiver = np.searchsorted(lives.entry_off, entries, side="right") - 1
    columns = (np.full(entries.size, kind), messages, receiver, rows.seq[entries])
    return np.stack([np.asarray(column, np.int64) for column in columns], axis=1).reshape(-1, 4)


def not_for_it(owed: obligations.Owed, logs: Logs, lives: Lives, rows: Rows) -> Offsets:
    """Deliveries of what the receiver was no member for."""
    where = np.flatnonzero(owed.forbidden)
    return odd_rows(NOT_FOR_IT, logs.entry[where], logs.ev[where], lives, rows)


def before_by_clock(rows: Rows, logs: Logs, lives: Lives, published: Publications) -> Offsets:
    """Deliveries that are dated before their publication, where one clock dates both."""
    if published.time_ns is None:
        return np.empty((0, 4), np.int64)
    delivers = np.flatnonzero(logs.ev >= 0)
    delivered_ns = rows.times(logs.entry[delivers], missing=NO_TIME)
    where = delivers[delivered_ns < published.time_ns[logs.ev[delivers]]]
    return odd_rows(BEFORE_BY_CLOCK, logs.entry[where], logs.ev[where], lives, rows)


def _moments(rows: Rows, logs: Logs, duties: Duties, *, dated: bool) -> dict[str, Any]:
    """The times of publication and first delivery of each message, where that matters and all nodes share a clock."""
    if not dated or not (duties.obliges & BIT["real-time"]).any():
        nothing = np.empty(0, np.int64)
        return {"published_ns": nothing, "first_ns": nothing, "first_by": nothing.astype(np.int32)}
    delivers = np.flatnonzero(logs.ev >= 0)
    time_ns = rows.times(logs.entry[delivers], missing=NO_TIME)
    order = np.argsort(time_ns, kind="stable")
    messages, first = np.unique(logs.ev[delivers][order], return_index=True)
    first_ns = np.full(logs.publication.size, NO_TIME, np.int64)
    first_ns[messages] = time_ns[order][first]
    first_by = np.full(logs.publication.size, -1, np.int32)
    first_by[messages] = np.searchsorted(logs.off, delivers[order][first], side="right") - 1
    return {"published_ns": rows.times(logs.publication), "first_ns": first_ns, "first_by": first_by}


def _copied(logs: Logs, lives: Lives, left: list[int] | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Of each message: was it delivered by anybody who counts? With `left`, those that left or died do not."""
    counts = np.ones(lives.node.size, bool) if left is None else present_at_the_end(lives, left)
    return delivered_by(counts.astype(np.uint8), logs.ev, logs.off, logs.publication.size)


def present_at_the_end(lives: Lives, left: list[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which receivers neither died nor left."""
    present: np.ndarray[Any, np.dtype[np.bool_]] = lives.alive != 0
    present[left] = False
    return present


def outsiders(
    rows: Rows,
    message: Ints,
    duties: Duties,
    member_nodes: np.ndarray[Any, Any],
    pub_node: Ints,
    mine: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
) -> tuple[Ints, int]:
    """Nodes that sent or received a message which is not for them and not theirs; and how many such rows there are.

    `message` is the number of each row's message, -1 for none. With `mine`, only those nodes are looked at.
    """
    entries = rows.of_kind("send", "receive")
    tagged = entries[message[entries] >= 0]
    node = rows.node_of(tagged)
    if mine is not None:
        tagged, node = tagged[mine[node]], node[mine[node]]
    number = message[tagged]
    pair = duties.audience[number].astype(np.int64) * len(rows.nodes) + node
    outside = (node != pub_node[number]) & ~np.isin(pair, member_nodes)
    found = np.stack((number[outside], node[outside], rows.seq[tagged[outside]]), axis=1).astype(np.int32)
    _, first = np.unique(found[:, 0].astype(np.int64) * len(rows.nodes) + found[:, 1], return_index=True)
    return np.ascontiguousarray(found[first]), int(tagged.size)


def _messages_of(rows: Rows, logs: Logs) -> Ints:
    """Of each row: the number of its message, if that was published."""
    number = np.full(len(rows.msg_names) + 1, -1, np.int32)
    number[rows.msg[logs.publication]] = np.arange(logs.publication.size)
    return number[rows.msg]


def last_digests(rows: Rows, lives: Lives) -> list[StateDigest]:
    """The last digest per live receiver and topic."""
    entries, values = digests(rows)
    receiver = np.searchsorted(lives.entry_off, entries, side="right") - 1
    topics = rows.column("topic", entries) if entries.size else []
    last: dict[tuple[int, str], StateDigest] = {}
    for entry, column, topic, value in zip(entries, receiver, topics, values, strict=True):
        if lives.alive[column]:
            name = rows.nodes[lives.node[column]]
            last[int(column), topic or ""] = StateDigest(name, topic or "", value, int(rows.seq[entry]))
    return [last[key] for key in sorted(last)]


def missing_and_excused(arrays: Arrays, about: RunFacts, owed: obligations.Owed) -> tuple[int, int]:
    """How much of what is owed was not delivered: what is asked for in the end, and what is not."""
    missing = int(((arrays.asked != 0) & left_to_give(arrays, about)).sum())
    return missing, owed.excused + int(owed.asked.sum()) - missing


def _facts(trace: LoadedTrace, rows: Rows, messages: int, assumed: list[str]) -> dict[str, int | str]:
    waited = overtaken(rows.kind, rows.msg, rows.off, len(rows.msg_names), KIND["receive"], KIND["deliver"])
    told = "; ".join([trace.assumed] * bool(trace.assumed) + assumed)
    return {
        **({ASSUMED: told} if told else {}),
        "events": rows.seq.size,
        "nodes": len(rows.nodes),
        "messages": messages,
        "deliveries": int((rows.kind == KIND["deliver"]).sum()),
        "holes": rows.holes or 0,
        "faults fired": sum(trace.manifest.faults.values()) if trace.manifest else 0,
        "deliveries that waited": int(waited),
    }
