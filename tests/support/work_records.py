"""The moments at which leaders of a group first wrote down that units are done, from the history of its topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ordercast.client.work.words import progress_in
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Received


def first_written(units: Mapping[PublicationId, str], records: Iterable[Publication]) -> dict[str, int]:
    """By name of the unit, on the monotonic clock."""
    ahead = time.time_ns() - time.monotonic_ns()
    found: dict[str, int] = {}
    missing = dict(units)
    for record in sorted(records, key=lambda record: record.published_ns):
        word = progress_in(record.payload)
        done = Received(word.done if word is not None else None)
        for pair in [pair for pair in missing if pair in done]:
            found[missing.pop(pair)] = record.published_ns - ahead
    return found
