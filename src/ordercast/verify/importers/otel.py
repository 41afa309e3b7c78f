"""OpenTelemetry: messaging spans in OTLP's JSON, an object a line or one in all, as the file exporter writes them.

A span whose operation is publish, send or create is a publication; one that is process, or receive where nothing is
processed, a delivery. A node is a service's instance, and its spans are in the order of their starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.trace.store import TraceError
from ordercast.verify.importers.rows import ImportedRows, decoded, json_lines, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ordercast.verify.load import LoadedTrace

_PUBLISH = {"publish", "send", "create"}
_DELIVER = ("process", "deliver", "receive")


def read(path: Path) -> LoadedTrace:
    """The messaging spans in a file."""
    spans = sorted(span for exported in _exports(path) for span in _spans(exported, path))
    if not spans:
        raise TraceError(f"{path}: no messaging span with messaging.message.id in it")
    operations = {operation for _, _, operation, _, _ in spans}
    delivers = next((name for name in _DELIVER if name in operations), "")
    rows = ImportedRows(path)
    seen: set[tuple[str, str]] = set()
    for start_ns, node, operation, message, topic in spans:
        if operation in _PUBLISH and (node, message) not in seen:
            seen.add((node, message))  # A message is created and then sent: that is one publication.
            rows.add(node, "publish", message, topic=topic, time_ns=start_ns)
        elif operation == delivers:
            rows.add(node, "deliver", message, time_ns=start_ns)
    return rows.trace(f"spans that {delivers or 'receive'} are deliveries, in the order of their starts")


def _exports(path: Path) -> Iterator[dict[str, Any]]:
    text = text_of(path).strip()
    if "\n" not in text or text.startswith(("{\n", "{\r")):
        yield decoded(text, str(path))
        return
    for _, exported in json_lines(path):
        yield exported


def _spans(exported: dict[str, Any], path: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """Start, node, operation, message and topic of every messaging span."""
    for resource in _lists(exported, "resourceSpans", path):
        about = _attributes(resource.get("resource"), path)
        node = about.get("service.instance.id") or about.get("service.name") or "unnamed"
        for scope in _lists(resource, "scopeSpans", path):
            for span in _lists(scope, "spans", path):
                said = _attributes(span, path)
                message = said.get("messaging.message.id")
                operation = said.get("messaging.operation.type") or said.get("messaging.operation", "")
                if message and operation:
                    topic = said.get("messaging.destination.name", "unnamed")
                    yield _nanoseconds(span.get("startTimeUnixNano"), path), node, operation, message, topic


def _lists(value: dict[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TraceError(f"{path}: {name} is no list of objects")
    return found


def _attributes(value: Any, path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _lists(value if isinstance(value, dict) else {}, "attributes", path):
        held = one.get("value")
        if isinstance(one.get("key"), str) and isinstance(held, dict):
            found[one["key"]] = str(next(iter(held.values()), ""))
    return found


def _nanoseconds(value: Any, path: Path) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise TraceError(f"{path}: startTimeUnixNano {value!r} is no number") from None
    if not 0 <= number < 1 << 63:
        raise TraceError(f"{path}: startTimeUnixNano {value!r} is out of range")
    return number
