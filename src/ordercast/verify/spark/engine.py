"""The warm engine: a Spark that stays, so that people who give many commands do not wait for its start each time.

`ordercast engine start` leaves a process behind that holds Java, the Spark context and its Python workers
(`engine_keeper`). Its address and its secret are in a file that only its owner can read. Commands attach to it as they
would to a Java of their own. It runs the code that it was started with; a command of other code starts its own Spark.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.verify.spark.gateway import own_interrupts
from ordercast.verify.spark.java import EnvironmentLacks, cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STARTS_WITHIN_S = 180.0
_ENDS_WITHIN_S = 20.0
_POLL_S = 0.1
_PRIVATE = 0o700


class EngineState(msgspec.Struct, frozen=True):
    """The description that a running engine gives of itself to those who may read it."""

    pid: int
    master: str
    port: int
    secret: str
    code: str
    """A digest of the package that it runs; see `code_digest`."""
    started_at: float
    idle_minutes: float


def directory() -> Path:
    """The directory in which the engine of this user keeps its state; nobody else can look into it."""
    place = cache_dir() / "engine"
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(_PRIVATE)
    return place


def state_file() -> Path:
    return directory() / "state.json"


def log_file() -> Path:
    return directory() / "log.txt"


def running() -> EngineState | None:
    """The engine of this user, if it lives: it holds its lock as long as it does, and no later process can have it."""
    if not state_file().exists() or not is_locked():
        return None
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(state_file().read_bytes(), type=EngineState)
    return None


def is_locked() -> bool:
    with (directory() / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def code_digest() -> str:
    """Tells one installation of this package from another one, and from itself before an edit or an upgrade."""
    import pyspark

    root = Path(__file__).parents[2]
    told = [sys.executable, pyspark.__version__, str(root)]
    for source in sorted(root.rglob("*.py")):
        seen = source.stat()
        told.append(f"{source.relative_to(root)} {seen.st_mtime_ns} {seen.st_size}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def attach(master: str | None) -> SparkSession | None:
    """A session of its own on the running engine; None if there is none that runs this code on that master."""
    state = running()
    if state is None or master not in (None, state.master):
        return None
    if state.code != code_digest():
        sys.stderr.write("ordercast: the running engine has other code than this command, which starts its own Spark\n")
        return None
    state_file().touch()  # The engine sees that it is used.
    return _session_at(state)


def _session_at(state: EngineState) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    where = {"PYSPARK_GATEWAY_PORT": str(state.port), "PYSPARK_GATEWAY_SECRET": state.secret}
    os.environ.update(where)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in where:
            del os.environ[name]
    java = gateway.jvm
    context = java.JavaSparkContext.fromSparkContext(java.org.apache.spark.SparkContext.getOrCreate())
    with own_interrupts():
        attached = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    return SparkSession(attached)


def start(master: str, memory: str | None, idle_minutes: float) -> EngineState:
    """Start the engine and wait until it can be used. One that runs already stays as it is."""
    if (found := running()) is not None:
        return found
    if not is_locked():
        state_file().unlink(missing_ok=True)  # Of one that was killed: it must not stand for the one that starts.
    command = [sys.executable, "-m", "ordercast.verify.spark.engine_keeper", master, memory or "", str(idle_minutes)]
    with log_file().open("wb") as log:
        keeper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    try:
        return _when_ready(keeper)
    except BaseException:
        keeper.terminate()
        raise


def _when_ready(keeper: subprocess.Popen[bytes]) -> EngineState:
    end = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < end and keeper.poll() is None:
        if (found := running()) is not None:
            return found
        time.sleep(_POLL_S)
    said = log_file().read_text(errors="replace").strip().splitlines()
    raise EnvironmentLacks(f"the engine did not start: {said[-1] if said else 'it says nothing'} (see {log_file()})")


def stop() -> bool:
    """End the engine, its Java and its workers; whether there was one."""
    state = running()
    if state is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    end = time.monotonic() + _ENDS_WITHIN_S
    while is_locked() and time.monotonic() < end:
        time.sleep(_POLL_S)
    if is_locked():
        with suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGKILL)  # Java ends by its closed pipe.
    return True
