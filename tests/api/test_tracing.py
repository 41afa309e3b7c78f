"""Trace context goes into a message's headers and comes out of them, with OpenTelemetry or without."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from ordercast import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of its API as is used: a current context to inject, and what was extracted."""
    package, propagate = ModuleType("opentelemetry"), ModuleType("opentelemetry.propagate")
    propagate.inject = lambda carrier: carrier.update(traceparent=PARENT)  # type: ignore[attr-defined]
    propagate.extract = lambda carrier: ("context", carrier["traceparent"])  # type: ignore[attr-defined]
    package.propagate = propagate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", package)
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)


@pytest.fixture
def no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


def message(**headers: str) -> tracing.HasHeaders:
    return SimpleNamespace(headers={name.encode(): value.encode() for name, value in headers.items()})


@pytest.mark.usefixtures("opentelemetry")
def test_the_current_span_travels_beside_other_headers_and_is_found_again() -> None:
    headers = tracing.with_context({b"kind": b"order"})
    assert headers == {b"kind": b"order", b"traceparent": PARENT.encode()}
    assert tracing.context_of(SimpleNamespace(headers=headers)) == ("context", PARENT)


@pytest.mark.usefixtures("opentelemetry")
def test_a_message_without_context_has_none() -> None:
    assert tracing.context_of(message(kind="order")) is None


@pytest.mark.usefixtures("no_opentelemetry")
def test_without_opentelemetry_headers_stay_as_they_are() -> None:
    assert tracing.with_context({b"kind": b"order"}) == {b"kind": b"order"}
    assert tracing.context_of(message(traceparent=PARENT)) is None
