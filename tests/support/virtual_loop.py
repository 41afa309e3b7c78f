"""An event loop for asyncio programs under virtual time: one for each simulated process, on the clock of its run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from ordercast.sim.clock import Scheduler

_LAST_WORDS = 100


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks, timers, tasks and futures; knows nothing of files, sockets or threads.

    A loop that is killed never runs anything again, like a process; one that stands still goes on where it was.
    """

    def __init__(self, clock: Scheduler) -> None:
        self.clock = clock
        self.alive = True
        self.errors: list[str] = []
        """What went wrong in callbacks and tasks that nobody looked at."""
        self._ready: deque[asyncio.Handle] = deque()
        self._planned = False
        self._stands_until = 0
        self._tasks: list[asyncio.Task[Any]] = []

    # What happens to the process

    def kill(self) -> None:
        self.alive = False

    def stand_still(self, until_ns: int) -> None:
        """SIGSTOP, and SIGCONT then."""
        self._stands_until = max(self._stands_until, until_ns)

    @property
    def stands_still(self) -> bool:
        return self.clock.now < self._stands_until

    def tidy_up(self) -> None:
        """After the run: end all tasks, so that Python does not complain of them."""
        told = list(self.errors)
        self.alive = True
        self._stands_until = 0
        for _ in range(_LAST_WORDS):
            pending = [task for task in self._tasks if not task.done()]
            if not pending:
                break
            for task in pending:
                task.cancel()
            self._run(None, None)
        self.alive = False
        self.errors = told

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.clock.now / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._plan()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.clock.at(round(when * 1e9), self._ring, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.alive:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is looked at when its time has come."""

    # Time

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self.clock.at(max(self.clock.now, self._stands_until), self._run)

    def _ring(self, handle: asyncio.TimerHandle, _: None) -> None:
        if self.alive and not handle.cancelled():
            self._ready.append(handle)
            self._plan()

    def _run(self, _: None, __: None) -> None:
        self._planned = False
        if not self.alive:
            return
        if self.stands_still:
            self._plan()
            return
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if self.alive and not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)
        if self._ready:
            self._plan()
