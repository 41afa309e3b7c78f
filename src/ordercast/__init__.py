"""Ordercast: every message chooses its delivery guarantee, and the trace proves that it held.

client ⇄ broker                       overlay ──▶ protocols
publish, subscribe: a tree            LoCaMu, daisy chain, vector, …:
of brokers that repairs itself        who is next to whom, in what order
        └────────────────┬────────────────────┘
               pure machines, run by
 sim (virtual time) · net (real processes) · explore (every interleaving)
                         │
                         ▼
       trace ──▶ verify (PySpark) ──▶ report
       what happened   did it hold?      tell people
"""

import logging
from typing import TYPE_CHECKING, Any

__version__: str

logging.getLogger("ordercast").addHandler(logging.NullHandler())  # Whoever wants to read a library's log says so.

if TYPE_CHECKING:
    from ordercast import blocking, spark, testing
    from ordercast.api import (
        Client,
        ConnectError,
        History,
        HistoryLost,
        Inbox,
        Message,
        OutboxFull,
        Position,
        PublishRefused,
        SessionLost,
        SubscribeDenied,
        Tls,
        UsageError,
        Work,
        WorkInbox,
        WorkLost,
        WorkSettings,
        connect,
    )
    from ordercast.runs import Run, simulate

__all__ = [
    "Client",
    "ConnectError",
    "History",
    "HistoryLost",
    "Inbox",
    "Message",
    "OutboxFull",
    "Position",
    "PublishRefused",
    "Run",
    "SessionLost",
    "SubscribeDenied",
    "Tls",
    "UsageError",
    "Work",
    "WorkInbox",
    "WorkLost",
    "WorkSettings",
    "__version__",
    "blocking",
    "connect",
    "simulate",
    "spark",
    "testing",
]

_HOMES = {"Run": "runs", "simulate": "runs"}
_MODULES = {"blocking", "spark", "testing"}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: a Spark worker that needs one module does not load all."""
    if name not in __all__:
        raise AttributeError(f"module 'ordercast' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        return version("ordercast")
    from importlib import import_module

    from ordercast.core.extras import missing_extra

    home = name if name in _MODULES else _HOMES.get(name, "api")
    try:
        module = import_module(f"ordercast.{home}")
    except ModuleNotFoundError as error:
        if line := missing_extra(error):
            raise ModuleNotFoundError(f"ordercast.{name}: {line}", name=error.name) from None
        raise
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
