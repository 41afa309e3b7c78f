"""Run a coroutine on the loop that the product uses; whatever goes wrong in the background fails the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

_STEP_S = 0.005


def run_async(main: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float = 60.0) -> T:
    """The result of `main()`. No task may be left over, and no callback may have raised."""
    failures: list[dict[str, Any]] = []

    async def guarded() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
        async with asyncio.timeout(timeout_s):
            result = await main()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks left over: {left}"
        return result

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(guarded())
    assert not failures, failures
    return result


async def until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Wait until the condition holds; it is looked at again after every few turns of the loop."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(_STEP_S)
