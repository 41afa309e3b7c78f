"""What all tests share: one Spark session, because starting it costs more than most tests, and the runtime's log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.wires import LogLines


LONG_FIRST = (
    "spark", "streaming", "chaos", "verify", "conformance", "properties", "unit/experiments", "unit/explore", "mutants",
    "cli", "api", "net", "doors",
)  # fmt: skip
"""Folders whose tests take long. They are begun first, so that no worker waits for another one's last file."""

settings.register_profile("without a clock", deadline=None)  # A busy machine is no fault of an example.
settings.load_profile("without a clock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by folder, those that take long first; `make test` hands them out in this order."""
    here = Path(__file__).parent
    ranks = {here / folder: rank for rank, folder in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: min((ranks[up] for up in item.path.parents if up in ranks), default=len(LONG_FIRST)))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session under test conditions: quick to start, two threads."""
    from ordercast.verify.spark.session import session

    started = session("local[2]", quick=True, memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
    yield started
    started.stop()


@pytest.fixture
def log() -> Iterator[LogLines]:
    """What the TCP runtime logs during the test."""
    from tests.support.wires import LogLines

    lines = LogLines()
    logger = logging.getLogger("ordercast.net")
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(logging.NOTSET)
