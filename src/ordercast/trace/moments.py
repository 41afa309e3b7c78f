"""Times as people read them. Looks at no clock."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_US = 253_402_300_799_999_999
"""The last moment of the year 9999: whatever a stranger says, a time can be told."""

Moment = dt.datetime


def moment(ns: int) -> Moment:
    """The time so many nanoseconds after the beginning of the epoch; the nearest that there is, if there is none."""
    return _EPOCH + dt.timedelta(microseconds=min(max(ns // 1000, 0), _LAST_US))
