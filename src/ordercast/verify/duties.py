"""Duties of each message: its guarantee, its keys, and for whom it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.trace.schema import OBLIGES
from ordercast.trace.store import TraceError
from ordercast.verify.arrow import coded, list_lengths, taken, whole
from ordercast.verify.columns import BIT
from ordercast.verify.verdict import ABOUT_TOTALS, CHECKS, ONE_ORDER

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest
    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.rows import Rows


@dataclass(frozen=True, slots=True)
class Duties:
    """Per message, in their numbering. An audience is a topic, or the destinations of one message."""

    checks: list[str]
    claimed: list[str]
    topics: list[str]
    topic: Ints
    audience: Ints
    audiences: int
    addressed: Ints
    """Messages with explicit destinations."""
    dst_off: Offsets
    dst_names: list[str]
    dst: Ints
    """Their destinations, as numbers in `dst_names`."""
    obliges: np.ndarray[Any, np.dtype[np.uint16]]
    key_off: Offsets
    keys: Ints
    key_topic: Ints
    key_names: pa.Array[Any]


def duties_of(trace: LoadedTrace, rows: Rows, publication: Offsets, wanted: JudgeOptions) -> Duties:
    """Read the publications of `trace`."""
    asked = wanted.checks
    unknown = [check for check in asked or () if check not in CHECKS]
    if unknown:
        raise TraceError(f"unknown check {unknown[0]!r} (one of {', '.join(CHECKS)})")
    table = taken(trace.table.select(["topic", "dst", "guarantee", "keys"]), rows.origin[publication])
    topics, topic = _topics(wanted.groups_of(trace) or {}, rows, table)
    addressed, dst_off, dst_names, dst = _destinations(table, trace.path)
    lacking = np.flatnonzero((topic == len(topics)) & ~np.isin(np.arange(topic.size), addressed))
    if lacking.size:
        name = rows.msg_names[int(rows.msg[publication[lacking[0]]])].as_py()
        raise TraceError(f"{trace.path}: publish of {name} has neither topic nor dst")
    audience = topic.copy()
    audience[addressed] = len(topics) + np.arange(addressed.size)
    obliges = _obliges(trace, table, topic == len(topics), addressed, asked)
    obliges = _with_claims(obliges, topic == len(topics), [*(asked or ()), *_claimed(trace)])
    key_off, keys, key_topic, key_names = _keys(table, topic, len(topics))
    checks = [check for check in CHECKS if not asked or check in asked]
    return Duties(
        checks=checks,
        claimed=[check for check in checks if asked or _claims(check, trace.manifest, obliges)],
        topics=topics,
        topic=topic,
        audience=audience,
        audiences=len(topics) + addressed.size,
        addressed=addressed,
        dst_off=dst_off,
        dst_names=dst_names,
        dst=dst,
        obliges=obliges,
        key_off=key_off,
        keys=keys,
        key_topic=key_topic,
        key_names=key_names,
    )


def _claims(check: str, manifest: Manifest | None, obliges: np.ndarray[Any, Any]) -> bool:
    if bool((obliges & BIT[check]).any()):
        return True
    if manifest is None:
        return False
    if check == "genuine" and manifest.genuine:
        return True
    return check in manifest.claims or check in OBLIGES.get(manifest.guarantee, ())


def _topics(groups: dict[str, list[str]], rows: Rows, published: pa.Table) -> tuple[list[str], Ints]:
    """All topics by name, and each message's; a message without one gets the number after the last."""
    named = whole(published.column("topic").cast(pa.string()))
    changes = rows.of_kind("subscribe", "unsubscribe")
    known = {*named.unique().to_pylist(), *groups, *rows.column("topic", changes)} - {None}
    topics = sorted(known)
    code = {name: number for number, name in enumerate(topics)}
    names, codes = coded(named.dictionary_encode())
    renumber = np.array([*(code[name] for name in names.to_pylist()), len(topics)], np.int32)
    return topics, renumber[codes]


def _destinations(published: pa.Table, path: str) -> tuple[Ints, Offsets, list[str], Ints]:
    lists = whole(published.column("dst"))
    lengths = list_lengths(lists)
    addressed = np.flatnonzero(lengths > 0).astype(np.int32)
    names, codes = coded(lists.flatten().dictionary_encode())
    if (codes < 0).any():
        raise TraceError(f"{path}: a dst has a destination without a name")
    return addressed, np.concatenate(([0], np.cumsum(lengths[addressed]))), names.to_pylist(), codes


def _obliges(
    trace: LoadedTrace, published: pa.Table, topicless: np.ndarray[Any, Any], addressed: Ints, asked: list[str] | None
) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The checks each message is held to, as bits: by its own guarantee, what was asked, or what the run claims."""
    names, code = coded(whole(published.column("guarantee").cast(pa.string())).dictionary_encode())
    own = names.to_pylist()
    for name in own:
        if name not in OBLIGES:
            raise TraceError(f"{trace.path}: unknown guarantee {name!r} (one of {', '.join(OBLIGES)})")
    claim = trace.manifest.guarantee if trace.manifest else "mixed"
    if claim not in OBLIGES and claim != "mixed":
        raise TraceError(f"{trace.path}: the manifest claims an unknown guarantee {claim!r}")
    default = np.full(topicless.size, _bits(asked or OBLIGES.get(claim, OBLIGES["causal"])), np.uint16)
    if not asked and claim == "mixed":
        default[addressed] = _bits(OBLIGES["atomic"])
    by_name = np.array([*(_bits(OBLIGES[name]) for name in own), 0], np.uint16)
    bits = np.where(code >= 0, by_name[code], default)
    # Without a topic there is no key that others could share: total then means one order of all of them.
    total = topicless & ((bits & BIT["total"]) != 0)
    bits[total] = (bits[total] & ~BIT["total"]) | BIT["prefix"] | BIT["acyclic"]
    return bits.astype(np.uint16)


def _claimed(trace: LoadedTrace) -> list[str]:
    claims = trace.manifest.claims if trace.manifest else []
    for check in claims:
        if check not in CHECKS:
            raise TraceError(
                f"{trace.path}: the manifest claims an unknown check {check!r} (one of {', '.join(CHECKS)})"
            )
    return claims


def _with_claims(
    bits: np.ndarray[Any, np.dtype[np.uint16]], topicless: np.ndarray[Any, Any], claims: list[str]
) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Duties with the claims about all totals, or all messages, of a topic put on each that has a topic."""
    about_totals = _bits([check for check in ABOUT_TOTALS if check in claims])
    bits[(bits & BIT["total"]) != 0] |= about_totals
    bits |= _bits([check for check in (ONE_ORDER,) if check in claims])
    bits[topicless] &= ~_bits((*ABOUT_TOTALS, ONE_ORDER))
    return bits


def _bits(checks: tuple[str, ...] | list[str]) -> np.uint16:
    return np.uint16(sum(int(BIT[check]) for check in set(checks)))


def _sorted(column: Any) -> tuple[Any, Ints]:
    """The words of a dictionary column by name, and its codes: numbers then do not depend on the order of rows."""
    words, codes = coded(column)
    order = np.argsort(np.array(words.to_pylist(), object), kind="stable")
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size)
    return taken(words, order), rank[codes]


def _keys(published: pa.Table, topic: Ints, topics: int) -> tuple[Offsets, Ints, Ints, pa.Array[Any]]:
    """Keys by message. A key belongs to its topic, and a message without one has the topic's key ''."""
    lists = whole(published.column("keys"))
    lengths = list_lengths(lists)
    words, word = _sorted(pa.concat_arrays([lists.flatten().fill_null(""), pa.array([""])]).dictionary_encode())
    message = np.repeat(np.arange(topic.size), np.maximum(lengths, 1))
    key = np.empty(message.size, np.int64)
    keyed = np.repeat(lengths > 0, np.maximum(lengths, 1))
    key[keyed] = word[:-1]
    key[~keyed] = word[-1]
    pairs = topic[message].astype(np.int64) * len(words) + key
    numbered, number = np.unique(pairs, return_inverse=True)
    # One message may name a key twice.
    once = np.unique(message * max(numbered.size, 1) + number)
    message, number = once // max(numbered.size, 1), once % max(numbered.size, 1)
    key_off = np.searchsorted(message, np.arange(topic.size + 1)).astype(np.int64)
    key_topic = (numbered // len(words)).astype(np.int32)
    names = taken(words, numbered % len(words))
    return key_off, number.astype(np.int32), np.minimum(key_topic, topics).astype(np.int32), names
