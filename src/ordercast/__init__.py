"""Ordercast: every message chooses its delivery guarantee, and the trace proves that it held.

1 overlay ──▶ 2 protocols ──▶ (3 broker)       pure machines, driven by sim/ (virtual time)
who is next    in what order    to whom, once
│
▼
4 trace ──▶ 5 verify (PySpark) ──▶ 6 report
what happened   did it hold?          tell people
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast import blocking
    from ordercast.api import (
        Client,
        ConnectError,
        Inbox,
        OutboxFull,
        PublishRefused,
        SessionLost,
        SubscribeDenied,
        connect,
    )
    from ordercast.runs import Run, simulate

__all__ = [
    "Client",
    "ConnectError",
    "Inbox",
    "OutboxFull",
    "PublishRefused",
    "Run",
    "SessionLost",
    "SubscribeDenied",
    "blocking",
    "connect",
    "simulate",
]

_HOMES = {"Run": "runs", "simulate": "runs"}
_MODULES = {"blocking"}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: a Spark worker that needs one module does not load all."""
    if name not in __all__:
        raise AttributeError(f"module 'ordercast' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"ordercast.{name}")
    return getattr(import_module(f"ordercast.{_HOMES.get(name, 'api')}"), name)
