"""The processes of the demo: brokers and bank replicas, started, led and never left behind.

All of them hold the read end of a pipe of this process: however it ends, they end with it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from ordercast.core.errors import UsageError
from ordercast.experiments.demo.setting import REPLICAS, Play, cluster_file, limits
from ordercast.experiments.ginger.setting import BROKERS
from ordercast.net.brokers.cluster import BrokerCluster
from ordercast.net.turn_ports import lasting_door
from ordercast.services.bank_replica import BankTold, Summary

_STOPPING_S = 5.0
Tell = Callable[[str, BankTold], None]


class ReplicaProcess:
    """One bank replica, led through its standard input; `tell` hears what it says, in a thread of its own."""

    def __init__(self, name: str, command: list[str], log: Path, tell: Tell) -> None:
        self.name = name
        self.joined = threading.Event()
        self.summary: Summary | None = None
        self.log = log
        with log.open("wb") as errors:
            # In a session of its own: an interrupt from the keyboard is for this process, which ends all others.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self._tell = tell
        self._listening = threading.Thread(target=self._listen, name=f"{name} listener", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = msgspec.json.decode(line, type=dict)
            if "event" not in words:
                self.summary = msgspec.convert(words, Summary)
                continue
            told = msgspec.convert(words, BankTold)
            if told.event == "joined":
                self.joined.set()
            else:
                self._tell(self.name, told)
        self.joined.set()  # Whoever waits for it need not wait any longer.

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def begin(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"begin\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended; whoever asks for its summary will see.

    def wait(self, patience_s: float) -> bool:
        """Whether it ended by itself within that time."""
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        self._listening.join()
        return True

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        """At once: what it had to say it has said."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._listening.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class DemoStage:
    """`with Stage(play, directory, tell) as stage`: no process of it is left afterwards.

    directory/run/        the trace, as journals
              brokers/    what the brokers said, and where they are
              replicas/   stores, sessions and histories
    """

    def __init__(
        self,
        play: Play,
        directory: Path,
        tell: Tell,
        *,
        web: dict[str, str],
        origins: tuple[str, ...],
    ) -> None:
        self.play = play
        self.kills = 0
        self.directory = directory
        self.run = directory / "run"
        self.histories = directory / "replicas"
        self.replicas: list[ReplicaProcess] = []
        self.killed: set[str] = set()
        self._tell = tell
        for part in (self.run, directory / "brokers", self.histories):
            part.mkdir(parents=True)
        self._limits = directory / "brokers" / "limits.json"
        self._limits.write_bytes(msgspec.json.encode(limits()))
        file = directory / "brokers" / "cluster-file.json"
        trace = str(self.run.resolve())
        file.write_bytes(msgspec.json.encode(cluster_file(free_ports(BROKERS), trace, web=web, origins=origins)))
        self.cluster = BrokerCluster(file, directory / "brokers", bound=True)

    def __enter__(self) -> DemoStage:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        for replica in self.replicas:
            replica.end()
        self.cluster.down(_STOPPING_S if error is None else 0.0)

    def start_brokers(self, patience_s: float) -> None:
        """All of them; done when they form one tree."""
        self.cluster.up(patience_s)
        if not self.cluster.await_tree(patience_s):
            raise UsageError(f"the brokers found no tree within {patience_s:g} s; see {self.directory / 'brokers'}")

    def start_replicas(self, patience_s: float) -> None:
        """All of them; done when everybody is a member of its topic."""
        for name in REPLICAS:
            log = self.histories / f"{name}.log"
            self.replicas.append(ReplicaProcess(name, self._command(name), log, self._tell))
        for replica in self.replicas:
            if not replica.joined.wait(patience_s) or not replica.running:
                raise UsageError(f"replica {replica.name} did not join: {replica.last_words()}")

    def _command(self, name: str) -> list[str]:
        edge, topic = REPLICAS[name]
        play, entries = self.play, self.cluster.config
        options = {
            "broker": entries.entry(edge).address, "name": name, "topic": topic, "store": self.histories / f"{name}.db",
            "data": self.histories / name, "trace": self.run, "history": self.histories / f"{name}.json",
            "accounts": play.accounts, "operations": play.operations, "mix": ",".join(map(str, play.mix)),
            "interval-ms": play.interval_ms, "seed": play.seed, "expect": play.expected(topic),
            "patience-s": play.patience_s, "limits": self._limits,
        }  # fmt: skip
        words = [f"--{option}={value}" for option, value in options.items()]
        return [sys.executable, "-P", "-m", "ordercast.services.bank_replica", *words, "--led"]

    def kill(self, broker: str) -> None:
        self.cluster.kill(broker, signal.SIGKILL)
        self.killed.add(broker)
        self.kills += 1

    def restart(self, broker: str, patience_s: float) -> None:
        self.cluster.restart(broker, patience_s)
        self.killed.discard(broker)

    def tree(self) -> dict[str, str] | None:
        """Every running broker and its parent, empty for the root; None if there is no whole tree just now."""
        parents: dict[str, str] = {}
        for state in self.cluster.status():
            if state.state == "running":
                parents[state.id] = state.detail["overlay"]["parent"] or ""
            elif state.id not in self.killed:
                return None
        return parents if _is_tree(parents) else None


def _is_tree(parents: dict[str, str]) -> bool:
    """One root, and everybody else under somebody who is there."""
    roots = [broker for broker, parent in parents.items() if not parent]
    return len(roots) == 1 and all(parent in parents for parent in parents.values() if parent)


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A port for each that stays its own."""
    doors = [lasting_door() for _ in names]
    ports = [int(door.getsockname()[1]) for door in doors]
    for door in doors:
        door.close()
    return dict(zip(names, ports, strict=True))
