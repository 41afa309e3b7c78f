"""Spark's Java process: started apart from the terminal, and ended together with the command that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

_ENDS_WITHIN_S = 3.0
_POLL_S = 0.02
_told_to_end = threading.Event()


def launch(conf: SparkConf) -> JavaGateway | None:
    """Start Java in a process group of its own; None if this process has one already.

    Ctrl-C in a terminal reaches everybody in the group of the command. Spark's Python workers would die of it, and
    Java would print why it lost them. So they are not in it; whoever catches the interrupt calls `end_java`.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return None
    words, mouth = os.pipe()
    threading.Thread(target=_hand_on, args=(words,), name="java-words", daemon=True).start()
    try:
        return launch_gateway(conf, {"process_group": 0, "stderr": mouth})  # type: ignore[no-untyped-call]
    finally:
        os.close(mouth)


def _hand_on(words: int) -> None:
    """Pass Java's output to stderr, until it is told to end: what it says then helps nobody."""
    with os.fdopen(words, errors="replace") as lines:
        for line in lines:
            if not _told_to_end.is_set():
                with suppress(OSError, ValueError):  # Nobody reads any more.
                    sys.stderr.write(line)
                    sys.stderr.flush()


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Ctrl-C means afterwards what it meant before: Spark's context sets a handler of its own, which talks to Java.

    That one would cancel the jobs of everybody on a shared engine, and raise in the midst of another talk with Java.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # No handler can be set from here, by Spark neither.
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_java() -> None:
    """End what `launch` started, finished starting or not: Java, its launcher and the Python workers.

    Java is asked first, and removes its temporary files; what does not end within moments is killed.
    """
    _told_to_end.set()
    groups = [pid for pid in _children() if _is_spark(pid) and _leads_its_group(pid)]
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, kind)
        end = time.monotonic() + _ENDS_WITHIN_S
        while groups and time.monotonic() < end:
            groups = [group for group in groups if not _has_ended(group)]
            time.sleep(_POLL_S)


def _has_ended(child: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(child, os.WNOHANG)[0] == child
    return True


def _children() -> list[int]:
    """Processes that this one started; none where the system does not list them (Java then ends by its closed pipe)."""
    found: list[int] = []
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, listed.read_text().split())
    return sorted(found)


def _is_spark(pid: int) -> bool:
    with suppress(OSError):
        return b"spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _leads_its_group(pid: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False
