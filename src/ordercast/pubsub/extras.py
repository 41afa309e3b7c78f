"""Extras of a publication besides payload and keys: headers, an end of life, an idempotence id, a way to answer.

Most publications carry none of it, so it is one optional value: a publication without extras is a byte longer for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ordercast.core.errors import UsageError
from ordercast.pubsub.filters import LONGEST_TOPIC

MOST_HEADERS = 64
MOST_HEADER_BYTES = 4096
"""Names and values of all headers of a publication together."""
LONGEST_DEDUP = 255
_LONGEST_ID = 640
"""Of a message, as `answers` says it: names of client, session and topic, and a number."""
_MOST_PARTS = 1 << 20
_LAST_NS = 1 << 63

Headers = tuple[tuple[bytes, bytes], ...]


class Extras(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that is optional. Nothing here changes where the publication goes, or its place in the order."""

    headers: Headers = ()
    """Names and values, in the publisher's order; no name twice."""
    expires_ns: int = 0
    """From then on (nanoseconds of the epoch) no application is handed it any more; 0: never."""
    dedup: str = ""
    """Of several publications on the topic with the same id a subscriber is handed one."""
    reply_to: str = ""
    """The topic on which its publisher waits for an answer."""
    answers: str = ""
    """The id of the message that this one answers."""
    parts: int = 0
    """The payload is a list of so many messages that are handed over together; 0: it is one message."""

    @property
    def weight(self) -> int:
        """Bytes that it takes on the wire and in memory, about."""
        named = sum([len(name) + len(value) + _PAIR_BYTES for name, value in self.headers])
        return named + _CHARACTER_BYTES * (len(self.dedup) + len(self.reply_to) + len(self.answers)) + _FIELDS_BYTES

    def told(self) -> dict[str, str]:
        """As the `info` of a trace's row tells it."""
        told = {f"header.{_text(name)}": _text(value) for name, value in self.headers}
        for field in ("expires_ns", "dedup", "reply_to", "answers", "parts"):
            if value := getattr(self, field):
                told[field] = str(value)
        return told


_PAIR_BYTES = 6
_CHARACTER_BYTES = 4
_FIELDS_BYTES = 32


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def objection(extras: Extras) -> str:
    """Why no broker takes a publication with these, in words; empty if there is no reason."""
    names = [name for name, _ in extras.headers]
    size = sum([len(name) + len(value) for name, value in extras.headers])
    if size > MOST_HEADER_BYTES or len(names) > MOST_HEADERS:
        return f"its headers have {len(names)} names and {size} bytes; {_HEADER_LIMIT}"
    if len(set(names)) != len(names):
        return "one of its headers is named twice"
    if not 0 <= extras.expires_ns < _LAST_NS or not 0 <= extras.parts <= _MOST_PARTS:
        return "its end of life or its number of parts makes no sense"
    limits = (extras.dedup, LONGEST_DEDUP), (extras.reply_to, LONGEST_TOPIC), (extras.answers, _LONGEST_ID)
    return "an id or a topic in its extras is too long" if any(len(text) > most for text, most in limits) else ""


_HEADER_LIMIT = f"at most {MOST_HEADERS} names and {MOST_HEADER_BYTES} bytes are allowed"


def checked_headers(headers: Mapping[bytes, bytes]) -> Headers:
    """The headers as they travel; a UsageError says what is wrong with them."""
    pairs = tuple(headers.items())
    for name, value in pairs:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise UsageError(f"headers: bytes are needed for names and values, not {name!r}: {value!r}"[:200])
    size = sum(len(name) + len(value) for name, value in pairs)
    if size > MOST_HEADER_BYTES or len(pairs) > MOST_HEADERS:
        raise UsageError(f"headers: {len(pairs)} names and {size} bytes; {_HEADER_LIMIT}")
    return pairs
