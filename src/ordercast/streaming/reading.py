"""A query's questions to the brokers: where topics begin and end, where a micro-batch may end, and what lies between.

Reading is stateless: a reader is known by positions, is no member of any topic, and nobody waits for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from ordercast.api import HistoryLost, Position
from ordercast.core.ids import Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.streaming import cuts
from ordercast.streaming.connections import client_of
from ordercast.streaming.options import EARLIEST, LATEST, ReadOptions


class TopicRange:
    """The range between two cuts of one topic; a start of None is the earliest that is kept."""

    def __init__(self, topic: str, start: Vector | None, end: Vector) -> None:
        self.topic = topic
        self.start = start
        self.end = end


def starting(options: ReadOptions) -> Position:
    """The position that the options say to begin at."""
    if isinstance(options.start, Position):
        return options.start
    if options.start == LATEST:
        return latest(options)
    topics = latest(options).topics if options.by_filter else options.topics
    with client_of(options.connection) as client:
        start: str | dt.datetime = options.start if isinstance(options.start, dt.datetime) else EARLIEST
        return client.read(topics, start).bounds(options.connection.timeout_s)[0]


def latest(options: ReadOptions) -> Position:
    """Behind what is kept now. Of one topic it is closed in itself; of several it is closed across them if asked for.

    Of filters it is closed across all topics that they take in now.

    Raises:
        TimeoutError: there is none now; it says why.
    """
    with client_of(options.connection) as client:
        if options.by_filter or (options.across and len(options.topics) > 1):
            return client.position_across(options.topics, timeout=options.connection.timeout_s)
        return client.read(options.topics, EARLIEST).bounds(options.connection.timeout_s)[1]


def ranges(options: ReadOptions, start: Position, end: Position) -> list[TopicRange]:
    """The ranges between two positions, in parts for tasks: one for each topic, or more where more are asked for."""
    known = set(start.topics)
    whole = [
        TopicRange(topic, start.of(topic) if topic in known else None, end.of(topic))
        for topic in end.topics
        if cuts.between(start.of(topic), end.of(topic))
    ]
    if not whole or len(whole) >= options.least_partitions:
        return whole
    share = -(-options.least_partitions // len(whole))
    return [
        TopicRange(one.topic, low if i or one.start is not None else None, high)
        for one in whole
        for i, (low, high) in enumerate(cuts.parts_of(one.start or {}, one.end, share))
    ]


def is_anything(options: ReadOptions, start: Position, end: Position) -> bool:
    """Whether a message lies between two positions.

    Where sessions have ended in between, and nothing else has come, nobody can tell without a look.
    """
    known = set(start.topics)
    for topic in end.topics:
        begin, behind = start.of(topic), end.of(topic)
        if topic not in known or cuts.counted(begin, behind):
            return True
        if cuts.newly_closed(begin, behind) and any(messages(options, TopicRange(topic, begin, behind))):
            return True
    return False


def messages(options: ReadOptions, wanted: TopicRange) -> Iterator[Sequence[Publication]]:
    """Everything in the range, many at a time, each message once, whichever copies die meanwhile.

    Raises:
        HistoryLost: a part of it is gone for good; with `failOnDataLoss=false` the rest is read without it.
    """
    topic, start = Topic(wanted.topic), wanted.start
    end = Position({topic: wanted.end})
    with client_of(options.connection) as client:
        while True:
            try:
                begin = EARLIEST if start is None else Position({topic: start})
                for batch in client.read(topic, begin, end).batches(options.connection.timeout_s):
                    start = cuts.behind(start or {}, batch)
                    yield batch
            except HistoryLost as lost:
                if options.fail_on_data_loss or lost.earliest is None:
                    raise
                start = cuts.join(start or {}, lost.earliest.of(topic))
            else:
                return


def within(options: ReadOptions, topic: str, start: Vector | None, end: Vector, most: int) -> Vector:
    """The cut behind the next `most` messages of a topic, in the order of a copy: closed, as every beginning of it."""
    if cuts.between(start or {}, end) <= most and not cuts.newly_closed(start or {}, end):
        return end
    reached, left = dict(start or {}), most
    for batch in messages(options, TopicRange(topic, start, end)):
        for message in batch:
            if message.number > reached.get(message.origin, 0):
                if not left:
                    return reached
                left -= 1
                reached[message.origin] = message.number
    return end
