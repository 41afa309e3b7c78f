"""A cluster of broker processes on this machine: started, watched, killed and stopped through its run directory.

    .ordercast/<cluster>/cluster.json     which file describes it
                         <id>.json        the process of a broker: pid, addresses, life; written when it is ready
                         <id>.log         what it said

Brokers are processes of their own: they outlive the command that started them, unless they are bound to it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.brokers.admin_client import ask
from ordercast.net.brokers.cluster_file import LOOPBACK, BrokerEntry, ClusterFile, load_cluster
from ordercast.net.brokers.incarnation import DataDirectory
from ordercast.trace.schema import JOURNALS

RUN_DIRECTORY = ".ordercast"
_STEP_S = 0.02
_LOG_TAIL_BYTES = 4096


class Ready(msgspec.Struct, frozen=True):
    """A started broker's note about itself: its process and addresses."""

    pid: int
    address: str
    admin: str
    life: int
    ticks: int = 0
    """When the process began, by the system's count: a pid alone may be somebody else's by now."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `ordercast status`."""

    id: str
    state: str
    """`running`, `stalled` (it does not answer), `seeking`, `waiting` (a root, for its lease), `down`, or `left`."""
    pid: int | None = None
    address: str = ""
    admin: str = ""
    life: int | None = None
    problem: str | None = None
    detail: Any = None


class BrokerCluster:
    """The cluster that `file` describes, as it runs on this machine. `bound`: its brokers end with this process."""

    def __init__(self, file: Path, run_directory: Path | None = None, *, bound: bool = False) -> None:
        self.file = file.resolve()
        self.config: ClusterFile = load_cluster(file)
        if not self.config.broker:
            raise UsageError(f"{file}: broker: a cluster needs at least one")
        self.run_directory = run_directory or self.file.parent / RUN_DIRECTORY / self.config.cluster
        self._children: dict[str, int] = {}
        self._bound = bound
        self._lifeline: tuple[int, int] | None = None
        """The pipe whose end is the end of bound brokers; this process alone can write to it."""

    @classmethod
    def find(cls, cluster: Path | None) -> BrokerCluster:
        """The cluster of the file, or the only one that was started from this directory."""
        if cluster is not None:
            return cls(cluster)
        found = [cls._started(path) for path in sorted(Path(RUN_DIRECTORY).glob("*/cluster.json"))]
        running = [one for one in found if any(one.process(entry.id) for entry in one.config.broker)]
        if len(found) > 1 and len(running) == 1:
            return running[0]
        if len(found) != 1:
            names = ", ".join(one.config.cluster for one in found)
            what = f"{len(found)} clusters were started from this directory ({names})" if found else (
                "no cluster was started from this directory"
            )  # fmt: skip
            raise UsageError(f"{what}; say which with --cluster FILE.toml")
        return found[0]

    @classmethod
    def _started(cls, record: Path) -> BrokerCluster:
        try:
            file = Path(msgspec.json.decode(record.read_bytes(), type=dict[str, str])["file"])
            there = file.is_file()
        except (OSError, KeyError, *NOT_DECODABLE):
            raise UsageError(f"{record}: does not say which cluster was started; say it with --cluster FILE") from None
        if not there:
            raise UsageError(f"{record}: the file {file} of this cluster is gone")
        return cls(file, record.parent)

    # Commands

    def up(self, patience_s: float = 15.0) -> list[str]:
        """Start every broker that does not run, parents first; the ids of those that were started.

        A broker whose parent does not listen yet would look for another, and the tree would not be that of the file.
        """
        self.run_directory.mkdir(parents=True, exist_ok=True)
        (self.run_directory / "cluster.json").write_bytes(msgspec.json.encode({"file": str(self.file)}))
        missing = {
            entry.id: entry for entry in self.config.broker if self.process(entry.id) is None and not self._left(entry)
        }  # fmt: skip
        started: list[str] = []
        while len(started) < len(missing):
            level = [
                entry for entry in missing.values()
                if entry.id not in started and (entry.parent not in missing or entry.parent in started)
            ]  # fmt: skip
            for entry in level:
                self._spawn(entry)
            for entry in level:
                self._await_ready(entry.id, patience_s)
            started += [entry.id for entry in level]
        return started

    def await_tree(self, patience_s: float = 15.0) -> bool:
        """Whether within that time every running broker is in the tree."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if all(state.state in ("running", "down", "left") for state in self.status()):
                return True
            time.sleep(5 * _STEP_S)
        return False

    def status(self) -> list[BrokerState]:
        return [self._state(entry) for entry in self.config.broker]

    def kill(self, broker: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the signal; the pid that got it. A deadly one is waited for."""
        self.config.entry(broker)
        process = self.process(broker)
        if process is None:
            raise UsageError(f"broker {broker!r}: not running")
        now_ns = time.monotonic_ns()
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            self._await_end(broker, process, 10.0)
            self._record_crash(broker, process.life, now_ns)
        return process.pid

    def _record_crash(self, broker: str, life: int, time_ns: int) -> None:
        if not self.config.trace:
            return
        from ordercast.trace.journal import journal_path, record_crash  # With pyarrow: only for those who need it.

        journal = journal_path(Path(self.config.trace) / JOURNALS, broker, life)
        if journal.exists():
            record_crash(journal, time_ns)

    def stop(self, broker: str, patience_s: float = 10.0) -> None:
        """Stop it in good order, or by force if that takes too long."""
        self.config.entry(broker)
        if not self._stop([broker], patience_s):
            raise UsageError(f"broker {broker!r}: not running")

    def restart(self, broker: str, patience_s: float = 15.0, *, salvage: bool = False) -> None:
        """Stop it in good order if it runs, and start it again; with `salvage`, from a damaged log too."""
        entry = self.config.entry(broker)
        self._stop([broker], patience_s)
        self.run_directory.mkdir(parents=True, exist_ok=True)
        self._spawn(entry, *(["--salvage"] if salvage else []))
        self._await_ready(broker, patience_s)

    def down(self, patience_s: float = 10.0) -> list[str]:
        """Stop every broker in good order, and by force whoever takes too long; the ids of those that ran."""
        stopped = self._stop([entry.id for entry in self.config.broker], patience_s)
        for entry in self.config.broker:
            self._ready_file(entry.id).unlink(missing_ok=True)
        for end in self._lifeline or ():
            os.close(end)
        self._lifeline = None
        return stopped

    def process(self, broker: str) -> Ready | None:
        """The running process of the broker."""
        try:
            ready = msgspec.json.decode(self._ready_file(broker).read_bytes(), type=Ready)
        except (OSError, *NOT_DECODABLE):
            return None
        if start_ticks(ready.pid) == ready.ticks != 0:
            return ready
        with suppress(ChildProcessError, OverflowError):
            os.waitpid(ready.pid, os.WNOHANG)  # A child of this very process leaves remains.
        return None

    # Inside

    def _left(self, entry: BrokerEntry) -> bool:
        """Whether it has left for good, though the file still names it."""
        return bool(self.config.data) and DataDirectory.left(Path(self.config.data) / entry.id)

    def _ready_file(self, broker: str) -> Path:
        return self.run_directory / f"{broker}.json"

    def _log_file(self, broker: str) -> Path:
        return self.run_directory / f"{broker}.log"

    def _spawn(self, entry: BrokerEntry, *options: str) -> None:
        self._ready_file(entry.id).unlink(missing_ok=True)
        command = [
            sys.executable, "-P", "-m", "ordercast", "broker", "--id", entry.id, "--config", str(self.file),
            "--admin", entry.admin or f"{LOOPBACK}:0", "--ready", str(self._ready_file(entry.id).resolve()),
            *options,
        ]  # fmt: skip
        log = str(self._log_file(entry.id))
        source: tuple[Any, ...] = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        if self._bound:
            self._lifeline = self._lifeline or os.pipe()
            command.append("--end-with-parent")
            source = (os.POSIX_SPAWN_DUP2, self._lifeline[0], 0)
        files = [
            source,
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        # Not a child to be waited for: a process in a session of its own, that outlives this one.
        pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setsid=True)
        self._children[entry.id] = pid

    def _await_ready(self, broker: str, patience_s: float) -> None:
        child = self._children[broker]
        deadline = time.monotonic() + patience_s
        while self.process(broker) is None:
            if start_ticks(child) == 0:
                raise UsageError(f"broker {broker!r} did not start: {self._last_words(broker)}")
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                raise UsageError(
                    f"broker {broker!r} was not ready within {patience_s:g} s; see {self._log_file(broker)}"
                )
            time.sleep(_STEP_S)

    def _last_words(self, broker: str) -> str:
        with self._log_file(broker).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("ordercast: ") if lines else "it said nothing"

    def _stop(self, brokers: list[str], patience_s: float) -> list[str]:
        running = {broker: process for broker in brokers if (process := self.process(broker)) is not None}
        for process in running.values():
            os.kill(process.pid, signal.SIGTERM)
            os.kill(process.pid, signal.SIGCONT)  # One that stands still could not obey.
        deadline = time.monotonic() + patience_s
        for broker, process in running.items():
            self._await_end(broker, process, max(0.0, deadline - time.monotonic()))
        return list(running)

    def _await_end(self, broker: str, process: Ready, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while self.process(broker) == process:
            if time.monotonic() > deadline:
                os.kill(process.pid, signal.SIGKILL)
                deadline = time.monotonic() + patience_s + 1
            time.sleep(_STEP_S)

    def _state(self, entry: BrokerEntry) -> BrokerState:
        process = self.process(entry.id)
        if process is None:
            return BrokerState(id=entry.id, state="left" if self._left(entry) else "down", address=entry.address)
        told = ask(process.admin, "/status", self.config.admin_key())
        if told is None:
            state, problem = "stalled", "does not answer"
        else:
            problem = told["problem"]
            unready = "waiting" if told["overlay"]["role"] == "root" else "seeking"
            state = "running" if problem is None else unready
        return BrokerState(
            id=entry.id, state=state, pid=process.pid, address=process.address, admin=process.admin,
            life=process.life, problem=problem, detail=told,
        )  # fmt: skip


def start_ticks(pid: int) -> int:
    """When the process began, by the system's count; 0 if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
