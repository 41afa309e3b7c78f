"""From a loaded trace to columns: numbers for names, logs by receiver, obligations decided, odd rows noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.verify import obligations
from ordercast.verify.arrow import taken
from ordercast.verify.columns import BIT, Arrays, Columns, Names, RunFacts, StateDigest
from ordercast.verify.duties import Duties, duties_of
from ordercast.verify.kernels.integrity import overtaken, repeated
from ordercast.verify.kernels.realize import publish_order
from ordercast.verify.logs import Lives, Logs
from ordercast.verify.members import settle_members, times_of
from ordercast.verify.order import happened_before, scopes_of
from ordercast.verify.rows import KIND, Rows, digests, given_up, lost_state, sorted_rows
from ordercast.verify.verdict import ASSUMED, EXCUSED, MADE, MISSING, OWED

if TYPE_CHECKING:
    from ordercast.verify.asked import Asked
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.order import Scopes

NO_TIME = np.iinfo(np.int64).max
# Kinds of breach in Arrays.odd.
INVENTED, REPUBLISHED, DUPLICATE, EARLY, NOT_FOR_IT, BEFORE_BY_CLOCK = range(6)


def prepare(trace: LoadedTrace, asked: Asked) -> Columns:
    """Everything the checks need to know of `trace`."""
    manifest = trace.manifest
    groups = asked.groups_of(trace)
    named = set(manifest.nodes) if manifest else set()
    rows = sorted_rows(trace, named.union(*(groups or {}).values(), _destinations(trace.table)))
    lives = _lives(rows)
    logs = _logs(rows, lives)
    duties = duties_of(trace, rows, logs.publication, asked)
    scopes = scopes_of(manifest, trace.path, asked.scope, asked.order_scope)
    pub = np.searchsorted(lives.entry_off, logs.publication, side="right").astype(np.int32) - np.int32(1)
    order = happened_before(logs.ev, logs.off, duties, scopes)
    owed, member_nodes, assumed = settle_members(trace, rows, lives, logs, duties, pub, asked)
    odd = np.concatenate((logs.odd, _not_for_it(owed, logs, lives, rows), _before_by_clock(trace, rows, logs, lives)))
    outsiders, sends = _outsiders(rows, logs, duties, member_nodes, lives.node[pub] if pub.size else pub)
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
        **_moments(trace, rows, logs, duties),
        odd=odd,
        outsiders=outsiders,
        **order.arrays,
    )
    about = _about(trace, rows, duties, scopes)
    about.complete = asked.is_complete(trace)
    about.facts = _facts(trace, rows, duties.topic.size, owed, assumed)
    about.live_rows = order.live
    about.sends_recorded = sends
    about.digests = _last_digests(rows, lives)
    about.claimed += ["convergence"] * bool(about.digests)
    nodes = pa.array(rows.nodes, pa.string())
    return Columns(about, arrays, Names(logs.names, nodes, pa.array(duties.topics, pa.string()), duties.key_names))


def _about(trace: LoadedTrace, rows: Rows, duties: Duties, scopes: Scopes) -> RunFacts:
    manifest = trace.manifest
    return RunFacts(
        run=trace.run,
        path=trace.path,
        protocol=manifest.protocol if manifest else "foreign trace",
        guarantee=manifest.guarantee if manifest else "mixed",
        scope=scopes.causal,
        order_scope=scopes.order,
        checks=duties.checks,
        claimed=duties.claimed,
        holes=rows.holes,
        complete=None,
        one_clock=manifest is not None and manifest.clock == "global",
        facts={},
    )


def _destinations(table: pa.Table) -> set[str]:
    return {name for name in pc.unique(pc.list_flatten(table.column("dst"))).to_pylist() if name is not None}


def _lives(rows: Rows) -> Lives:
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
    again = repeated(ev, np.searchsorted(entry, lives.entry_off), len(rows.msg_names)) != 0
    duplicate = entry[again]
    entry, ev = entry[~again], ev[~again]
    off = np.searchsorted(entry, lives.entry_off).astype(np.int64)
    number, early = publish_order(ev, off, len(rows.msg_names))
    made_up, made_up_number = np.unique(rows.msg[invented], return_inverse=True)
    number[made_up] = codes.size + np.arange(made_up.size)
    publication = np.empty(codes.size, np.int64)
    publication[number[~ev[ev < 0]]] = entry[ev < 0]
    by_number = np.concatenate((np.empty(codes.size, np.int64), made_up))
    by_number[: codes.size] = rows.msg[publication]
    odd = [
        _odd(INVENTED, invented, codes.size + made_up_number, lives, rows),
        _odd(REPUBLISHED, republished, number[rows.msg[republished]], lives, rows),
        _odd(DUPLICATE, duplicate, number[rows.msg[duplicate]], lives, rows),
        _odd(EARLY, entry[early != 0], number[rows.msg[entry[early != 0]]], lives, rows),
    ]
    numbered = np.where(ev >= 0, number[np.maximum(ev, 0)], ~number[~np.minimum(ev, -1)]) if ev.size else ev
    names = taken(rows.msg_names, by_number)
    return Logs(numbered.astype(np.int32), off, entry, publication, np.concatenate(odd), names)


def _odd(kind: int, entries: Offsets, messages: Any, lives: Lives, rows: Rows) -> Ints:
    receiver = np.searchsorted(lives.entry_off, entries, side="right") - 1
    columns = (np.full(entries.size, kind), messages, receiver, rows.seq[entries])
    return np.stack([np.asarray(column, np.int32) for column in columns], axis=1).reshape(-1, 4)


def _not_for_it(owed: obligations.Owed, logs: Logs, lives: Lives, rows: Rows) -> Ints:
    where = np.flatnonzero(owed.forbidden)
    return _odd(NOT_FOR_IT, logs.entry[where], logs.ev[where], lives, rows)


def _before_by_clock(trace: LoadedTrace, rows: Rows, logs: Logs, lives: Lives) -> Ints:
    """Deliveries that are dated before their publication, where one clock dates both."""
    if trace.manifest is None or trace.manifest.clock != "global":
        return np.empty((0, 4), np.int32)
    delivers = np.flatnonzero(logs.ev >= 0)
    published_ns = times_of(rows, logs.publication)
    delivered_ns = times_of(rows, logs.entry[delivers], missing=NO_TIME)
    where = delivers[delivered_ns < published_ns[logs.ev[delivers]]]
    return _odd(BEFORE_BY_CLOCK, logs.entry[where], logs.ev[where], lives, rows)


def _moments(trace: LoadedTrace, rows: Rows, logs: Logs, duties: Duties) -> dict[str, Any]:
    """When each message was published and first delivered, where that matters and all nodes share a clock."""
    shared = trace.manifest is not None and trace.manifest.clock == "global"
    if not shared or not (duties.obliges & BIT["real-time"]).any():
        nothing = np.empty(0, np.int64)
        return {"published_ns": nothing, "first_ns": nothing, "first_by": nothing.astype(np.int32)}
    delivers = np.flatnonzero(logs.ev >= 0)
    time_ns = times_of(rows, logs.entry[delivers], missing=NO_TIME)
    order = np.argsort(time_ns, kind="stable")
    messages, first = np.unique(logs.ev[delivers][order], return_index=True)
    first_ns = np.full(logs.publication.size, NO_TIME, np.int64)
    first_ns[messages] = time_ns[order][first]
    first_by = np.full(logs.publication.size, -1, np.int32)
    first_by[messages] = np.searchsorted(logs.off, delivers[order][first], side="right") - 1
    return {"published_ns": times_of(rows, logs.publication), "first_ns": first_ns, "first_by": first_by}


def _outsiders(
    rows: Rows, logs: Logs, duties: Duties, member_nodes: np.ndarray[Any, Any], pub_node: Ints
) -> tuple[Ints, int]:
    """Nodes that sent or received a message which is not for them and not theirs; and how many such rows there are."""
    entries = rows.of_kind("send", "receive")
    number = np.full(len(rows.msg_names), -1, np.int64)
    number[rows.msg[logs.publication]] = np.arange(logs.publication.size)
    tagged = entries[rows.msg[entries] >= 0]
    message = number[rows.msg[tagged]]
    tagged, message = tagged[message >= 0], message[message >= 0]
    node = rows.node_of(tagged)
    pair = duties.audience[message].astype(np.int64) * len(rows.nodes) + node
    outside = (node != pub_node[message]) & ~np.isin(pair, member_nodes)
    found = np.stack((message[outside], node[outside], rows.seq[tagged[outside]]), axis=1).astype(np.int32)
    _, first = np.unique(found[:, 0].astype(np.int64) * len(rows.nodes) + found[:, 1], return_index=True)
    return np.ascontiguousarray(found[first]), int(tagged.size)


def _last_digests(rows: Rows, lives: Lives) -> list[StateDigest]:
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


def _facts(
    trace: LoadedTrace, rows: Rows, messages: int, owed: obligations.Owed, assumed: list[str]
) -> dict[str, int | str]:
    waited = overtaken(rows.kind, rows.msg, rows.off, len(rows.msg_names), KIND["receive"], KIND["deliver"])
    told = "; ".join([trace.assumed] * bool(trace.assumed) + assumed)
    missing = int(owed.asked.sum())
    return {
        **({ASSUMED: told} if told else {}),
        "events": rows.seq.size,
        "nodes": len(rows.nodes),
        "messages": messages,
        "deliveries": int((rows.kind == KIND["deliver"]).sum()),
        OWED: owed.made + missing + owed.excused,
        MADE: owed.made,
        MISSING: missing,
        EXCUSED: owed.excused,
        "holes": rows.holes or 0,
        "faults fired": sum(trace.manifest.faults.values()) if trace.manifest else 0,
        "deliveries that waited": int(waited),
    }
