"""The session is quiet, runs our code in its workers, and refuses a bad master in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ordercast.verify.spark import session as session_module
from ordercast.verify.spark.session import MasterError, session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def in_a_new_process(code: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_workers_run_this_python_and_see_the_package(spark: SparkSession) -> None:
    def where(batches):  # type: ignore[no-untyped-def]
        import sys

        import pyarrow as pa

        from ordercast.trace.schema import FORMAT

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "format": [FORMAT]})

    row = spark.range(1).mapInArrow(where, "python string, format bigint").collect()[0]

    assert (row["python"], row["format"]) == (sys.executable, 1)


def test_a_running_session_is_used_again_but_not_for_another_master(spark: SparkSession) -> None:
    assert session() is spark
    assert session("local[2]") is spark
    with ThreadPoolExecutor(1) as beside:
        assert beside.submit(session, "local[2]").result() is spark
    with pytest.raises(MasterError, match=r"^local\[3\]: this process already has a Spark session on local\[2\]"):
        session("local[3]")


@pytest.mark.parametrize("master", ["", "lokal[2]", "local[two]", "spark://host", "http://host:7077", "local[2] "])
def test_what_is_no_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(MasterError, match="not a Spark master") as caught:
        session(master)
    assert "\n" not in str(caught.value)


def test_a_cluster_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(MasterError, match=rf"^spark://127\.0\.0\.1:{port}: no Spark answers there"):
            session_module._expect_answer(f"spark://127.0.0.1:{port}")


def test_one_answering_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as up, socket.socket() as down:
        down.bind(("127.0.0.1", 0))
        ports = down.getsockname()[1], up.getsockname()[1]
        session_module._expect_answer("spark://" + ",".join(f"127.0.0.1:{port}" for port in ports))


def test_a_fresh_session_writes_nothing_anywhere(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    code = """
        from ordercast.verify.spark.session import session
        spark = session(quick=True, memory="512m")
        assert spark.range(10).count() == 10
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    """

    done = in_a_new_process(code, work, XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(work.iterdir()) == []


def test_importing_the_session_does_not_import_spark(tmp_path: Path) -> None:
    code = """
        import sys
        import ordercast.verify.spark.metrics, ordercast.verify.spark.session
        assert "pyspark" not in sys.modules
    """

    done = in_a_new_process(code, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
