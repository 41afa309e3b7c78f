"""The source and the sink of kept topics on a real Spark cluster: `python -m tests.chaos.spark_stream_cluster`.

A standalone master and two workers on loopback, from the installed package alone, whose Python has our dependencies but
not our package: it travels by itself. The driver alone has it. A query reads all topics of a filter and publishes what
it has read on another topic; a worker is killed with everything that it runs, in the middle. A subscriber counts what
it is handed: each row once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from pathlib import Path

import ordercast
from ordercast.blocking import Inbox
from tests.support.kept_thread import KeptCluster, kept_cluster, published
from tests.support.spark_cluster import SparkCluster

MESSAGES = 3000
_QUERY = """
import sys
from ordercast.streaming.source import OrdercastSource
from ordercast.verify.spark.session import session
master, addresses, checkpoint = sys.argv[1:4]
spark = session(master, memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
spark.dataSource.register(OrdercastSource)
where = {"brokers": addresses, "subscribePattern": "kept.in.*", "startingOffsets": "earliest", "minPartitions": "4"}
frame = spark.readStream.format("ordercast").options(includeHeaders="true", **where).load()
frame = frame.selectExpr("key", "value", "headers")
sink = frame.writeStream.format("ordercast").options(brokers=addresses, topic="kept.out", guarantee="fifo")
sink = sink.option("checkpointLocation", checkpoint)
sink.trigger(processingTime="0 seconds").start().awaitTermination()
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ordercast-") as scratch:
        where = Path(scratch)
        python = _python_without_our_package(where / "python")
        with (
            kept_cluster(where / "brokers") as brokers,
            SparkCluster(where / "cluster") as cluster,
            brokers.connect("ann") as ann,
        ):
            inbox = ann.subscribe("kept.out")
            _publish(brokers, 0, MESSAGES // 3)
            query = _start(python, where, cluster.master, brokers.addresses)
            try:
                found = [_next(inbox, query)]
                cluster.kill_worker(1)
                print(f"a worker killed after {len(found)} rows", flush=True)
                _publish(brokers, MESSAGES // 3, MESSAGES)
                begun = time.monotonic()
                while len(set(found)) < MESSAGES:
                    found.append(_next(inbox, query))
                ann.publish("kept.out", b"end", guarantee="fifo")
                while found[-1] != b"end":
                    found.append(_next(inbox, query))
                print(f"the rest came within {time.monotonic() - begun:.0f} s")
            finally:
                os.killpg(query.pid, 9)
                query.wait()
    counted = Counter(found[:-1])
    wrong = MESSAGES - len(counted) + sum(count > 1 for count in counted.values())
    print(f"{MESSAGES} rows through a cluster whose Python lacks our package: {wrong} rows lost or handed over twice")
    return int(wrong > 0)


def _next(inbox: Inbox, query: subprocess.Popen[bytes]) -> bytes:
    deadline = time.monotonic() + 300
    while True:
        assert query.poll() is None, "the query has ended by itself"
        try:
            return inbox.get(1).payload
        except TimeoutError:
            assert time.monotonic() < deadline, "the query publishes nothing"


def _publish(brokers: KeptCluster, first: int, last: int) -> None:
    with brokers.connect("writer") as writer:
        middle = (first + last) // 2
        published(writer, "kept.in.a", first, middle - 1, key="k", headers={b"h": b"1"})
        published(writer, "kept.in.b", middle, last - 1)


def _start(python: Path, where: Path, master: str, addresses: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", _QUERY, master, addresses, str(where / "checkpoint")]
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(Path(ordercast.__file__).parents[1])}
    return subprocess.Popen(command, cwd=where, env=environment, start_new_session=True)


def _python_without_our_package(where: Path) -> Path:
    """The Python of the hosts: what we depend on is installed there, we are not."""
    venv.create(where, symlinks=True)
    paths = {"base": str(where), "platbase": str(where)}
    Path(sysconfig.get_path("purelib", vars=paths), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = where / "bin" / "python"
    tried = subprocess.run([python, "-P", "-c", "import pyspark, uvloop, ordercast"], capture_output=True, cwd=where)
    assert b"No module named 'ordercast'" in tried.stderr, tried.stderr
    return python


if __name__ == "__main__":
    sys.exit(main())
