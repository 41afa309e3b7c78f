"""A standalone Spark cluster on loopback from the installed package alone: a master and workers, each a process."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from ordercast.net.turn_ports import lasting_door
from ordercast.verify.spark.java import java_home

if TYPE_CHECKING:
    from types import TracebackType

_SPARK = Path(pyspark.__file__).parent
_STARTED_WITHIN_S = 120.0
_ENVIRONMENT = {
    "SPARK_HOME": str(_SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    "SPARK_DAEMON_MEMORY": "256m",
}


def free_port() -> int:
    with lasting_door() as door:
        return int(door.getsockname()[1])


class SparkCluster:
    """Starts a master and `workers` workers of one core; each works in a directory of its own below `where`."""

    def __init__(self, where: Path, workers: int = 2, memory: str = "1g") -> None:
        self.where = where
        self.memory = memory
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        _until(lambda: _listens(self.port), "the master listens")
        self.workers = [self.add_worker() for _ in range(workers)]
        _until(lambda: all(self._registered(n) for n in range(workers)), "the workers are registered")

    @property
    def started(self) -> int:
        """How many processes were started, the master included; worker-N is in the directory of that name."""
        return len(self._processes)

    def add_worker(self) -> subprocess.Popen[bytes]:
        name = f"worker-{len(self._processes)}"
        options = (
            "--host",
            "127.0.0.1",
            "-c",
            "1",
            "-m",
            self.memory,
            "-d",
            str(self.where / name),
            "--webui-port",
            "0",
        )
        return self._start(name, "worker.Worker", *options, self.master)

    def _start(self, name: str, what: str, *options: str) -> subprocess.Popen[bytes]:
        (self.where / name).mkdir(parents=True)
        with (self.where / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *options],
                cwd=self.where / name,
                env=os.environ | _ENVIRONMENT | {"JAVA_HOME": str(java_home())},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _registered(self, worker: int) -> bool:
        return "Successfully registered with master" in (self.where / f"worker-{worker + 1}.log").read_text()

    def kill_worker(self, worker: int) -> None:
        """Kill -9 a worker with all that it runs."""
        os.killpg(self.workers[worker].pid, 9)

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(holds: object, what: str) -> None:
    assert callable(holds)
    end = time.monotonic() + _STARTED_WITHIN_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {_STARTED_WITHIN_S} s: {what}")
        time.sleep(0.2)  # Another process has to come up, and says so in no other way.
