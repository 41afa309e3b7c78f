"""Options of the source and sink: what is wrong is said in one line that names the option, before anything is read."""

from __future__ import annotations

import datetime as dt

import pytest

from ordercast.api import Position, UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.streaming.options import Options

ANN = Origin("ann~1")
WHERE = {"brokers": "127.0.0.1:7000, 127.0.0.1:7001", "subscribe": "a, b"}


def test_names_are_read_in_any_case_and_lists_with_blanks() -> None:
    options = Options({"BROKERS": WHERE["brokers"], "Subscribe": "a, b,a", "MAXoffsetsPerTrigger": "10"})
    reading = options.reading(stream=True)
    assert reading.connection.brokers == ("127.0.0.1:7000", "127.0.0.1:7001")
    assert (reading.topics, reading.most_offsets, reading.start) == (("a", "b"), 10, "latest")
    assert Options(WHERE).reading(stream=False).start == "earliest"


def test_a_position_or_a_time_is_a_place_to_start() -> None:
    position = Position({Topic("a"): {ANN: 3}})
    assert Options({**WHERE, "startingOffsets": str(position)}).reading(stream=True).start == position
    at = Options({**WHERE, "startingTimestamp": "1500"}).reading(stream=True).start
    assert at == dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"brokers": ""}, "option brokers: HOST:PORT of one broker"),
        ({"broker": "127.0.0.1:7002"}, "option broker: brokers is given too"),
        ({"topics": "a"}, "option topics: subscribe is given too"),
        ({"subscribe": "", "topics": "a.>.b"}, "option topics: filter 'a.>.b'"),
        ({"brokers": "here"}, "address: 'here' is not HOST:PORT"),
        ({"subscribe": ""}, "option subscribe: the topics to read"),
        ({"subscribePattern": "a.>"}, "option subscribePattern: subscribe is given too"),
        ({"subscribe": "", "subscribePattern": " , "}, "option subscribe: the topics to read"),
        ({"subscribe": "", "subscribePattern": "a.>.b"}, "option subscribePattern: filter 'a.>.b'"),
        ({"subscribe": "", "subscribePattern": r"orders\..*"}, "looks like a regular expression; it takes filters"),
        (
            {"subscribe": "", "subscribePattern": "a.>", "cut": "topic"},
            "option cut: it is 'across' with subscribePattern",
        ),
        ({"subscribe": "a.*"}, "topic 'a.*'"),
        ({"startingOffset": "earliest"}, "option startingOffset: there is none of that name"),
        ({"path": "a"}, "option path: topics have no path"),
        ({"startingOffsets": "soon"}, "option startingOffsets: 'soon' is neither"),
        ({"startingOffsets": "cut1.nonsense"}, "option startingOffsets: 'cut1.nonsense' is neither"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: 'yesterday' is no number"),
        ({"startingTimestamp": "9" * 30}, "option startingTimestamp: "),
        (
            {"startingTimestamp": "1", "startingOffsets": "earliest"},
            "option startingTimestamp: startingOffsets is given",
        ),
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' is no whole number"),
        ({"minPartitions": "two"}, "option minPartitions: 'two' is no whole number"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: 'maybe' is neither"),
        ({"cut": "deep"}, "option cut: 'deep' is neither"),
        ({"timeout": "nan"}, "option timeout: 'nan' is no number"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options({**WHERE, **given}).reading(stream=True)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_filters_name_the_topics_and_of_a_position_only_what_is_read_counts() -> None:
    given = {"brokers": WHERE["brokers"], "subscribePattern": "a.*, b"}
    reading = Options(given).reading(stream=True)
    assert (reading.topics, reading.by_filter) == (("a.*", "b"), True)
    assert not Options(WHERE).reading(stream=True).by_filter
    position = Position({Topic("a.x"): {ANN: 3}, Topic("b"): {ANN: 1}, Topic("c"): {ANN: 7}})
    ending = Options({**given, "endingOffsets": str(position)}).reading(stream=False).end
    assert isinstance(ending, Position)
    assert ending.topics == ("a.x", "b")


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_without_anything_in_it_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="has nothing to read"):
        Options({**WHERE, **given}).reading(stream=False)


def test_a_sink_names_a_guarantee_that_exists() -> None:
    assert Options({**WHERE, "topic": "t", "guarantee": "total"}).writing().guarantee == "total"
    with pytest.raises(UsageError, match="guarantee 'exact'"):
        Options({**WHERE, "guarantee": "exact"}).writing()


def test_topics_takes_names_or_filters_and_broker_is_brokers() -> None:
    def read(topics: str) -> tuple[tuple[str, ...], bool]:
        found = Options({"broker": "127.0.0.1:7000", "topics": topics}).reading(stream=True)
        assert found.connection.brokers == ("127.0.0.1:7000",)
        return found.topics, found.by_filter

    assert read("accounts.PT, orders") == (("accounts.PT", "orders"), False)
    assert read("accounts.*, orders") == (("accounts.*", "orders"), True)


def test_the_source_has_a_public_name() -> None:
    import ordercast
    from ordercast.streaming.source import OrdercastSource

    assert ordercast.spark.OrdercastSource is OrdercastSource
