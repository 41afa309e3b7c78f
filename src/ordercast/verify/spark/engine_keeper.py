"""The process that holds the warm engine: starts Spark, writes down where it is, ends when it is told or not used."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NoReturn

import msgspec

from ordercast.verify.spark.engine import EngineState, code_digest, directory, state_file
from ordercast.verify.spark.gateway import end_java
from ordercast.verify.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKS_EVERY_S = 5.0
_held: list[IO[str]] = []
_TRIES, _TRIES_EVERY_S = 20, 0.1


def keep(master: str, memory: str, idle_minutes: float) -> None:
    """Run the engine until SIGTERM, until nobody used it for so long, or until its Spark has ended."""
    signal.signal(signal.SIGTERM, _end)
    lock = (directory() / "lock").open("a")
    _take(lock)  # Until this process has ended, and not a moment less: who stops the engine waits for that.
    try:
        spark = session(master, memory=memory or None)
        _write_state(_state_of(spark, master, idle_minutes))
        while _is_wanted(spark, idle_minutes):
            time.sleep(_LOOKS_EVERY_S)
    finally:
        state_file().unlink(missing_ok=True)
        end_java()
        _held.append(lock)


def _take(lock: IO[str]) -> None:
    """The lock of this user's engine. Somebody who only looks holds it for a moment; another engine, for longer."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_TRIES_EVERY_S)
    sys.exit("another engine of this user is starting or running")


def _end(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _state_of(spark: SparkSession, master: str, idle_minutes: float) -> EngineState:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    at = gateway.gateway_parameters
    return EngineState(os.getpid(), master, at.port, at.auth_token, code_digest(), time.time(), idle_minutes)


def _write_state(state: EngineState) -> None:
    """The secret is in it: the file is never readable for others, not even for a moment."""
    part = state_file().with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(state))
    part.replace(state_file())


def _is_wanted(spark: SparkSession, idle_minutes: float) -> bool:
    if not state_file().exists():
        return False
    if spark.sparkContext._jsc.sc().isStopped():
        return False
    unused_s = time.time() - state_file().stat().st_mtime
    return unused_s < idle_minutes * 60 or bool(spark.sparkContext.statusTracker().getActiveJobsIds())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        keep(sys.argv[1], sys.argv[2], float(sys.argv[3]))
