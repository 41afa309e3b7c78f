"""One connection for all that a process of Spark asks of the brokers.

Spark uses its Python processes again and again: one connection each, and one session of a sink, instead of one for
every task of every micro-batch. A connection that nobody uses for a while is closed, so that no broker keeps a session
for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ordercast import blocking
from ordercast.api.errors import PublishRefused
from ordercast.streaming.options import Connection

LOG = logging.getLogger("ordercast.streaming")
IDLE_S = 20.0
"""A connection that was not used for so long is closed."""


class _SharedClient:
    def __init__(self, client: blocking.Client) -> None:
        self.client = client
        self.users = 0
        self.uses = 0
        """How often it was taken: whoever wants to close it looks whether that has changed."""
        self.closing = False
        """Several may find it idle: those who used it at the same time. One of them closes it."""


_lock = threading.RLock()  # A reader that was dropped may be collected, and end its use, while this thread has it.
_open: dict[tuple[int, Connection, str], _SharedClient] = {}


@contextmanager
def client_of(connection: Connection, purpose: str = "read") -> Iterator[blocking.Client]:
    """The client of this process at these brokers, connected now if there is none."""
    key = (os.getpid(), connection, purpose)  # What a parent has opened is no use to a forked child.
    with _lock:
        shared = _open.get(key)
        if shared is None or shared.client.ended:
            shared = _open[key] = _SharedClient(_connect(connection))
        shared.users += 1
        shared.uses += 1
    try:
        yield shared.client
    finally:
        with _lock:
            shared.users -= 1
            _close_when_idle(key, shared)


def _connect(connection: Connection) -> blocking.Client:
    return blocking.connect(
        connection.brokers, user=connection.user, token=connection.token, cluster=connection.cluster,
        tls=connection.tls, timeout=connection.timeout_s,
    )  # fmt: skip


def _close_when_idle(key: tuple[int, Connection, str], shared: _SharedClient) -> None:
    def look(uses: int) -> None:
        with _lock:
            idle = shared.users == 0 and shared.uses == uses and not shared.closing
            shared.closing = shared.closing or idle
            if idle and _open.get(key) is shared:
                del _open[key]
        if idle:
            _close(shared.client)

    timer = threading.Timer(IDLE_S, look, (shared.uses,))
    timer.daemon = True
    timer.start()


def _close(client: blocking.Client) -> None:
    """In a thread that has nobody to tell but the log."""
    try:
        client.close()
    except (OSError, PublishRefused) as error:  # What a task published was flushed, or the task has failed and said so.
        LOG.warning("an idle connection to the brokers was not closed in order: %s", error)
