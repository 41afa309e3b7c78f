"""A broker's status as Prometheus reads it: each family once, with what it means and its type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MEANINGS = {
    "up": "The broker answers.",
    "healthy": "The broker is in a tree and does its work.",
    "connections": "Open connections, by who is at the other end.",
    "queue_bytes": "Bytes that wait to be read by others.",
    "longest_queue_bytes": "Bytes that wait for the slowest of the others.",
    "overlay_is_root": "This broker is the root of the tree.",
    "overlay_term": "The term of the tree: it grows with every election.",
    "overlay_children": "Brokers below this one.",
    "all_topics": "Topics that this broker takes part in.",
    "all_log": "Publications that are not stable everywhere yet.",
    "all_pending": "Totals that wait to be committed.",
    "all_held": "Publications that wait for earlier ones.",
    "all_bytes": "Memory that publications under way take, about.",
    "ledger_bytes": "Size of the log on the disk.",
    "ledger_flushes": "Turns in which something was written to the disk.",
    "entries_admitted": "Publications taken from clients.",
    "packets_received": "Packets from brokers and clients.",
    "totals_prepared": "Totals for which members were asked.",
    "totals_committed": "Totals that got their place.",
    "publications_refused": "Publications that their client had no right to, or that break a limit.",
    "publications_held": "Publications that had to wait for earlier ones.",
    "publishers_cut_off": "Clients disconnected because they published on in spite of the flow control.",
    "members_fenced": "Sessions given up because they were away for too long.",
    "slow_members_fenced": "Sessions given up because they held a topic up.",
    "sessions_replaced": "Sessions ended by a newer one of the same client.",
    "sessions_ended": "Sessions that took leave.",
    "sessions_folded": "Ended sessions that became a number in an interval.",
    "topics_refused": "Topics refused because of a limit.",
    "filters_refused": "Filters refused because of a limit.",
    "entries_kept": "Publications written to the archive.",
    "entries_cleaned": "Publications removed from the archive by age or size.",
    "entries_compacted": "Publications removed from the archive because a later one has their key.",
    "history_records_read": "Publications read from the archive.",
    "connections_opened": "Connections that introduced themselves.",
    "nats_connections_opened": "Connections of NATS clients.",
    "web_connections_opened": "Connections of browsers and HTTP.",
    "web_requests": "Requests at the web door.",
}  # fmt: skip


def exposition(status: Mapping[str, Any], *, is_root: bool, ledger: tuple[int, int] | None) -> Iterator[str]:
    """All but the histograms. `ledger`: bytes and flushes of the log, if there is one."""
    yield from _gauge("up", 1)
    yield from _gauge("healthy", int(status["problem"] is None))
    kinds = [connection["kind"] for connection in status["connections"]]
    yield from _family("connections", "gauge")
    for kind in ("broker", "client"):
        yield f'ordercast_connections{{kind="{kind}"}} {kinds.count(kind)}'
    queued = [connection["queued_bytes"] for connection in status["connections"]]
    yield from _gauge("queue_bytes", sum(queued))
    yield from _gauge("longest_queue_bytes", max(queued, default=0))
    for name, value in _numbers(status["overlay"]):
        yield from _gauge(f"overlay_{name}", value)
    yield from _gauge("overlay_is_root", int(is_root))
    for name, value in status["totals"].items():
        yield from _gauge(f"all_{name}", value)
    yield from _topic_gauges(status["topics"])
    if ledger is not None:
        yield from _gauge("ledger_bytes", ledger[0])
        yield from _gauge("ledger_flushes", ledger[1])
    for name, value in status["counters"].items():
        yield from _family(name, "counter", "_total")
        yield f"ordercast_{name}_total {value}"


def _family(name: str, kind: str, ending: str = "") -> Iterator[str]:
    meaning = MEANINGS.get(name) or f"{name.replace('_', ' ').capitalize()}."
    yield f"# HELP ordercast_{name}{ending} {meaning}"
    yield f"# TYPE ordercast_{name}{ending} {kind}"


def _gauge(name: str, value: float) -> Iterator[str]:
    yield from _family(name, "gauge")
    yield f"ordercast_{name} {value}"


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in sorted(values.items()):
        if name == "term" and value:
            value = value[0]  # noqa: PLW2901 - its number; the rest says whose it is
        if isinstance(value, bool | int | float):
            yield name, int(value) if isinstance(value, bool) else value


def _topic_gauges(topics: Mapping[str, Any]) -> Iterator[str]:
    """One family a number: all its samples must stand together."""
    families: dict[str, list[str]] = {}
    for topic, values in sorted(topics.items()):
        if isinstance(values, Mapping):
            label = str(topic).replace("\\", "\\\\").replace('"', '\\"')
            for name, value in _numbers(values):
                families.setdefault(name, []).append(f'ordercast_topic_{name}{{topic="{label}"}} {value}')
    for name, samples in families.items():
        yield from _family(f"topic_{name}", "gauge")
        yield from samples
