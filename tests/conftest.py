"""What all tests share: one Spark session, because starting it costs more than most tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session under test conditions: quick to start, two threads."""
    from ordercast.verify.spark.session import session

    started = session("local[2]", quick=True, memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
    yield started
    started.stop()
