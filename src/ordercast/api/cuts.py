"""Positions that are closed across topics: what an application waits for when it asks for one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.core.ids import Topic
from ordercast.pubsub.received import Vector

if TYPE_CHECKING:
    from ordercast.client.machine import ClientMachine
    from ordercast.net.host import ProcessHost


class PendingCut:
    """One question, as the client machine tells of it."""

    def __init__(self) -> None:
        self.why_not = "no broker that decides has answered"
        self._answer: asyncio.Future[dict[Topic, Vector]] = asyncio.get_running_loop().create_future()

    def told(self, cuts: dict[Topic, Vector], why_not: str) -> None:
        if why_not:
            self.why_not = why_not
        elif not self._answer.done():
            self._answer.set_result(cuts)

    def fail(self, error: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    async def answer(self) -> dict[Topic, Vector]:
        return await self._answer


async def cut_across(
    host: ProcessHost, machine: ClientMachine, waiting: dict[int, PendingCut], topics: Sequence[str],
    timeout: float | None,
) -> dict[Topic, Vector]:  # fmt: skip
    """ARC-C1: what the whole tree had taken in at one moment; TimeoutError says why there is none."""
    pending = PendingCut()
    number = host.turn(machine.ask_cut, topics)
    waiting[number] = pending
    try:
        async with asyncio.timeout(timeout):
            return await pending.answer()
    except TimeoutError:
        named = ", ".join(topics[:3]) + (", …" if len(topics) > 3 else "")
        raise TimeoutError(f"no position across {named} within {timeout:g} s: {pending.why_not}") from None
    finally:
        del waiting[number]
        if host.failure is None and not machine.ended:
            host.turn(machine.cuts.give_up, number)
