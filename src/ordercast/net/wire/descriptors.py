"""File descriptors: connections may take all but a reserve, so that no crowd of them keeps a process from its files.

A process that cannot open the next file of its log has lost its disk, and stops. Systems hand out the lowest number
that is free; so the number of a new connection says how many are taken, whoever has them: connections of any door,
those that are being closed, and those that never got as far as being known.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Protocol

_RESERVE = 384
"""For logs, archives, the admin port, and for dialing others."""
_ENOUGH = 1 << 20


def raise_limit() -> None:
    """Take as many as this process may have: what a shell starts with is often much less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # Some systems allow less than they say.
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Descriptor(Protocol):
    """A socket, or what an event loop shows of one."""

    def fileno(self) -> int: ...


def takes_the_last(raw: Descriptor | None) -> bool:
    """Whether an accepted connection has a descriptor that is kept for other things: it must go at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if raw is None or soft == resource.RLIM_INFINITY:
        return False
    return raw.fileno() >= soft - min(_RESERVE, soft // 2)
