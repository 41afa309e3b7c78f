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
    from ordercast.runs import Run, simulate

__all__ = ["Run", "simulate"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: a Spark worker that needs one module does not load all."""
    if name in __all__:
        from ordercast import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'ordercast' has no attribute {name!r}")
