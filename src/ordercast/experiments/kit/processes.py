"""Configurations as processes of this machine: a study without Spark, with the same results."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from ordercast.experiments.kit.sweep import SweepOutcome, attempt, outcome_of

if TYPE_CHECKING:
    from ordercast.experiments.kit.study import Row


def cores() -> int:
    """How many configurations run at a time if nobody says: one for each processor that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessSweep:
    """Runs `run` on every configuration, the heaviest first, `at_once` at a time. A dead process takes only its own."""

    def __init__(
        self, run: Callable[[Row], Row], configurations: Sequence[Row], *, weights: Sequence[float], at_once: int
    ) -> None:
        self._run = run
        self._configurations = configurations
        self._at_once = at_once
        self._waiting = deque(sorted(range(len(configurations)), key=lambda position: -weights[position]))
        self._suspects: list[int] = []
        """A process died while these ran: each runs alone in the end, to find the one to blame."""

    def outcomes(self) -> Generator[SweepOutcome]:
        """Each configuration's outcome as it arrives. Closing the iterator ends what is under way."""
        try:
            while self._waiting:
                yield from self._side_by_side()
            for position in self._suspects:
                yield self._alone(position)
        finally:
            for process in multiprocessing.active_children():
                process.kill()

    def _side_by_side(self) -> Generator[SweepOutcome]:
        """Until all are done, or until a process dies: what ran then is suspected, and what waited still waits."""
        running: dict[Future[dict[str, Any]], int] = {}
        pool = _pool(self._at_once)
        while self._waiting or running:
            while self._waiting and len(running) < self._at_once:
                position = self._waiting.popleft()
                running[self._submit(pool, position)] = position
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                if isinstance(future.exception(), BrokenProcessPool):
                    self._suspects += sorted(running.values())
                    return
                del running[future]
                yield outcome_of(future.result())
        pool.shutdown()

    def _alone(self, position: int) -> SweepOutcome:
        with _pool(1) as pool:
            try:
                return outcome_of(self._submit(pool, position).result())
            except BrokenProcessPool:
                return SweepOutcome(position, error="its process died")

    def _submit(self, pool: ProcessPoolExecutor, position: int) -> Future[dict[str, Any]]:
        return pool.submit(attempt, self._run, position, self._configurations[position])


def _pool(at_once: int) -> ProcessPoolExecutor:
    """Processes that begin anew: they share no lock and no thread with this one, as a fork would."""
    return ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches everybody in a terminal; this process answers it, and ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
