"""What is wrong with an option of a stream is said before anything is dialed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_wrong_with_an_option_is_what_spark_says_last(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="option brokers: HOST:PORT of one broker or several"):
        spark.readStream.format("ordercast").option("subscribe", "kept.t").load()
