"""Clients of the broker that single requests share: one for each user, kept while requests come.

A session for each request would be a membership for each publication. So what the requests of one user publish is in
the order in which the requests came.
"""

from __future__ import annotations

import asyncio

from ordercast.api.client import Client
from ordercast.doors.guests import client_for, leave
from ordercast.net.host import ProcessHost

_KEPT_S = 60.0


class Regulars:
    """One client for each user whose requests came in the last minute."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host
        self._clients: dict[str, asyncio.Task[Client]] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def client(self, user: str, token: str) -> Client:
        """The user's client, made anew if it has lost its session; the caller has checked the token."""
        known = self._clients.get(user)
        if known is None or (known.done() and (known.exception() is not None or known.result().ended)):
            known = self._clients[user] = asyncio.get_running_loop().create_task(client_for(self._host, user, token))
        self._keep(user)
        return await asyncio.shield(known)

    def _keep(self, user: str) -> None:
        planned = self._ends.pop(user, None)
        if planned is not None:
            planned.cancel()
        self._ends[user] = asyncio.get_running_loop().call_later(_KEPT_S, self._drop, user)

    def _drop(self, user: str) -> None:
        self._ends.pop(user).cancel()
        task = asyncio.get_running_loop().create_task(_end(self._clients.pop(user)))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        for user in list(self._ends):
            self._drop(user)
        await asyncio.gather(*self._leaving, return_exceptions=True)


async def _end(making: asyncio.Task[Client]) -> None:
    try:
        client = await making
    except (ConnectionError, TimeoutError):
        return
    await leave(client)
