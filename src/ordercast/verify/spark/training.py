"""One small trace judged and measured on Spark, so that Java meets the classes that such work needs."""

from __future__ import annotations

import sys
from pathlib import Path

from ordercast.verify.spark.jobs import verify_runs
from ordercast.verify.spark.metrics import measure
from ordercast.verify.spark.session import session

_TRACE = """{"node": "ann", "seq": 1, "kind": "publish", "msg": "m", "topic": "t"}
{"node": "ann", "seq": 2, "kind": "deliver", "msg": "m"}
{"node": "bob", "seq": 1, "kind": "deliver", "msg": "m"}
"""
_WRITES_FOR_S = 300


def train(directory: Path) -> None:
    """Judge and measure, then wait for Java to end: it writes the archive of its classes on the way out."""
    from pyspark import SparkContext

    run = directory / "small.jsonl"
    run.write_text(_TRACE)
    spark = session("local[2]", quick=True)
    verify_runs(spark, [run])
    measure(spark, [run])
    spark.stop()
    java = SparkContext._gateway.proc  # type: ignore[union-attr]  # It is there: the session needed it.
    java.stdin.close()
    java.wait(timeout=_WRITES_FOR_S)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
