"""Records what record_kafka.py does as OpenTelemetry spans, by its SDK and its exporter of files, a service a client.

    python examples/record_otel.py mock --partitions 3 --nodes 3 --messages 8 -o spans.jsonl
    ordercast verify --from-format otel spans.jsonl --complete

Needs confluent-kafka, opentelemetry-sdk and opentelemetry-exporter-otlp-json-file.
"""

from __future__ import annotations

from pathlib import Path

from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Tracer
from record_kafka import arguments, main
from recorder import TOPIC, Recorder


class SpanRecorder(Recorder):
    """A span for each publication and delivery, as the conventions for messaging name them."""

    def __init__(self, out: Path, nodes: int) -> None:
        super().__init__()
        self._providers = {f"n{number}": _provider(f"n{number}", out) for number in range(nodes)}

    def row(self, node: str, kind: str, message: str) -> None:
        super().row(node, kind, message)
        operation, span = ("send", SpanKind.PRODUCER) if kind == "publish" else ("process", SpanKind.CONSUMER)
        said = {
            "messaging.system": "kafka",
            "messaging.operation.type": operation,
            "messaging.destination.name": TOPIC,
            "messaging.message.id": message,
        }
        tracer: Tracer = self._providers[node].get_tracer("board")
        tracer.start_span(f"{operation} {TOPIC}", kind=span, attributes=said).end()

    def write(self, path: Path) -> None:  # noqa: ARG002 - Each span was written when it ended.
        for provider in self._providers.values():
            provider.shutdown()


def _provider(name: str, out: Path) -> TracerProvider:
    about = Resource.create({"service.name": "board", "service.instance.id": name})
    provider = TracerProvider(resource=about)
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(str(out))))
    return provider


if __name__ == "__main__":
    asked = arguments("spans.jsonl")
    main(asked, SpanRecorder(asked.out, asked.nodes))
