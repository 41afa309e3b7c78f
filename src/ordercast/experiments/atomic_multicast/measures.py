"""Measures a run of closed-loop clients from its trace alone: latency, throughput, packets, bytes and visits.

A client that waits for nothing but its answer publishes again at the very instant the answer arrives, so the trace
need not record answers: the time between two publications of a client is the latency of the first, and every
publication that is not a client's first marks the completion of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.experiments.kit.study import Row
from ordercast.trace.store import event_files

_COLUMNS = ["node", "kind", "time_ns", "msg", "dst", "peer", "payload_bytes", "header_bytes", "info"]
_ANSWER = "Done"
_WARM_UP = 0.2
"""Share of the completions that come before the window in which latency and throughput are measured."""
_TRIMMED = 0.05
"""Share of the lowest and of the highest latencies that the trimmed mean leaves out, as the article does."""
_NS_PER_MS, _NS_PER_S = 1e6, 1e9

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Hops(msgspec.Struct, frozen=True):
    """Copies of messages sent from server to server, one entry each: who sent which message to whom."""

    sender: Places
    receiver: Places
    message: Places
    """Place in the list of publications."""
    header_bytes: Numbers


def measures(run: Path, servers: Sequence[str]) -> Row:
    """The measurements of the run at `run`, as columns of a results table; `servers` in the order all agree on."""
    events = pa.concat_tables([pq.read_table(path, columns=_COLUMNS) for path in event_files(run)])
    published = events.filter(pc.field("kind") == "publish")
    sends = events.filter(pc.field("kind") == "send")
    destinations = _destinations(published, servers)
    hops = _hops(sends, published, servers)
    return {
        **_pace(published),
        **_sizes(destinations),
        **_traffic(sends, published.num_rows),
        "header_bytes_per_hop": _mean(hops.header_bytes),
        **_visits(hops, destinations),
    }


def _destinations(published: pa.Table, servers: Sequence[str]) -> Flags:
    """One row per publication, one column per server: whether it is a destination."""
    lists = published["dst"].combine_chunks()
    found = np.zeros((published.num_rows, len(servers)), dtype=np.bool_)
    found[_integers(pc.list_parent_indices(lists)), _places(pc.list_flatten(lists), servers)] = True
    return found


def _places(names: Any, among: Any) -> Places:
    """The index of each name; -1: there is none."""
    return _integers(pc.fill_null(pc.index_in(names, value_set=pa.array(among, pa.string())), -1))


def _integers(values: Any) -> Places:
    numbers: Places = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    return numbers.astype(np.int64)


def _pace(published: pa.Table) -> Row:
    """Latency and throughput between the warm-up and the last publication."""
    ordered = published.sort_by([("node", "ascending"), ("time_ns", "ascending")])
    times = _integers(ordered["time_ns"])
    clients = ordered["node"].to_numpy()
    same_client = clients[1:] == clients[:-1]
    order = np.argsort(times[1:][same_client], kind="stable")
    completions, latencies = times[1:][same_client][order], np.diff(times)[same_client][order] / _NS_PER_MS
    first = int(len(completions) * _WARM_UP)
    window = latencies[first + 1 :]
    if not window.size or completions[-1] == completions[first]:
        return dict.fromkeys(("completed", "throughput_per_s", *_LATENCIES), None)
    seconds = float(completions[-1] - completions[first]) / _NS_PER_S
    return {"completed": window.size, "throughput_per_s": window.size / seconds, **_spread(window)}


_LATENCIES = ("latency_ms_mean", "latency_ms_trimmed", "latency_ms_p50", "latency_ms_p99")


def _spread(latencies: Numbers) -> Row:
    """Sorted before summing: the order of rows must not show in the last digit."""
    ordered = np.sort(latencies)
    cut = int(len(ordered) * _TRIMMED)
    median, high = np.percentile(ordered, [50, 99])
    figures = (ordered.mean(), ordered[cut : len(ordered) - cut].mean(), median, high)
    return {name: float(figure) for name, figure in zip(_LATENCIES, figures, strict=True)}


def _sizes(destinations: Flags) -> Row:
    sizes = destinations.sum(axis=1)
    shares: Row = {f"to_{size}": float((sizes == size).mean()) for size in (1, 2, 3)}
    return {"published": len(sizes), "destinations_mean": float(sizes.mean()), **shares}


def _traffic(sends: pa.Table, messages: int) -> Row:
    """Packets and bytes per multicast, clients' copies included; answers to clients cost the same everywhere."""
    kinds: Any = pc.map_lookup(sends["info"], "packet", "first")
    answers = _places(kinds, [_ANSWER]) >= 0
    headers = sends["header_bytes"].to_numpy()[~answers]
    return {"packets_per_message": len(headers) / messages, "header_bytes_per_message": int(headers.sum()) / messages}


def _hops(sends: pa.Table, published: pa.Table, servers: Sequence[str]) -> Hops:
    carrying = sends.filter(pc.is_valid(sends["msg"]))
    sender, receiver = _places(carrying["node"], servers), _places(carrying["peer"], servers)
    between = (sender >= 0) & (receiver >= 0)
    message = _places(carrying["msg"], published["msg"].combine_chunks())
    headers = carrying["header_bytes"].to_numpy().astype(np.float64)
    return Hops(sender[between], receiver[between], message[between], headers[between])


def _visits(hops: Hops, destinations: Flags) -> Row:
    """How often messages were handled by servers that are no destinations, and how often those were skipped.

    A hop counts as fast or slow where a destination sends a message up and there are servers between it and the next
    destination: fast if the message goes straight there. Where messages do not only climb, there are no such hops.
    """
    visiting = ~destinations[hops.message, hops.sender]
    visited = np.zeros(len(destinations), dtype=np.bool_)
    visited[hops.message[visiting]] = True
    several = destinations.sum(axis=1) > 1
    following = _next_destination(destinations)[hops.message, hops.sender]
    climbs = bool((hops.receiver > hops.sender).all())
    over_gap = ~visiting & (following > hops.sender + 1) & climbs
    fast = over_gap & (hops.receiver == following)
    steps = int(visiting.sum())
    return {
        "visits_per_message": steps / len(destinations),
        "visits_per_destination": steps / int(destinations.sum()),
        "gaps": int(over_gap.sum()),
        "fast_share": _mean(fast[over_gap]),
        "destinations_only_share": _mean(~visited[several]),
    }


def _next_destination(destinations: Flags) -> Places:
    """For every publication and server the next higher destination; the number of servers where there is none."""
    count = destinations.shape[1]
    following = np.full(destinations.shape, count, dtype=np.int64)
    for server in range(count - 2, -1, -1):
        following[:, server] = np.where(destinations[:, server + 1], server + 1, following[:, server + 1])
    return following


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(np.sort(values).mean()) if values.size else None
