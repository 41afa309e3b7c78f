"""From a publisher's options to what a publication carries: its guarantee, its keys and its extras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.messages import GUARANTEES, Guarantee
from ordercast.pubsub.extras import LONGEST_DEDUP, Extras, checked_headers

_NS = 1_000_000_000
_LONGEST_S = 100 * 365.25 * 86400
_encode = msgspec.msgpack.Encoder().encode
_LONGEST_KEY = 255
_MOST_KEYS = 32
KNOWN_LEVELS: dict[str | Guarantee, Guarantee] = {
    name: GUARANTEES[name] for name in ("eventual", "fifo", "causal", "total")
}  # fmt: skip
"""Guarantees by name, and by themselves."""
KNOWN_LEVELS.update({level: level for level in tuple(KNOWN_LEVELS.values())})


def level_of(guarantee: str | Guarantee) -> Guarantee:
    """The guarantee that a publisher names; a wrong one is an error that lists the right ones."""
    level = KNOWN_LEVELS.get(guarantee)
    if level is None:
        raise unknown_name("guarantee", str(guarantee), [name for name in KNOWN_LEVELS if isinstance(name, str)])
    return level


def keys_of(key: str | None, keys: Iterable[str]) -> tuple[str, ...]:
    """The key items of a publication; a UsageError names what is wrong."""
    if isinstance(keys, str):
        raise UsageError(f"keys: a list of keys is needed, not {keys!r}")
    named = (*((key,) if key is not None else ()), *keys)
    for i, name in enumerate(named):
        if not isinstance(name, str):
            raise UsageError(f"keys: {name!r} is not a string")
        if len(name) > _LONGEST_KEY:
            raise UsageError(f"keys: {name[:20]!r}... has {len(name)} characters; at most {_LONGEST_KEY} are allowed")
        if name in named[:i]:
            raise UsageError(f"keys: {name!r} is named twice")
    if len(named) > _MOST_KEYS:
        raise UsageError(f"keys: {len(named)} are named; at most {_MOST_KEYS} are allowed")
    return named


def extras_of(
    headers: Mapping[bytes, bytes] | None, expires_after: float | None, dedup: str, published_ns: int,
    given: Extras | None = None,
) -> Extras | None:  # fmt: skip
    """Extras that the options ask for, added to those `given`; None: none. A UsageError names what is wrong."""
    base = given if given is not None else Extras()
    named = checked_headers(headers) if headers else base.headers
    if dedup and (not isinstance(dedup, str) or len(dedup) > LONGEST_DEDUP):
        raise UsageError(f"dedup: a text of at most {LONGEST_DEDUP} characters is needed, not {dedup!r}"[:200])
    expires_ns = _expiry(expires_after, published_ns) if expires_after is not None else base.expires_ns
    extras = Extras(named, expires_ns, dedup or base.dedup, base.reply_to, base.answers, base.parts)
    return extras if extras != Extras() else None


def _expiry(after_s: float, published_ns: int) -> int:
    if not 0 < after_s <= _LONGEST_S:
        raise UsageError(f"expires_after: {after_s!r} is no number of seconds above 0")
    return published_ns + int(after_s * _NS)


def packed(payloads: Iterable[bytes]) -> tuple[bytes, Extras]:
    """Several payloads as one, and the extras that say so."""
    listed = list(payloads)
    if not listed:
        raise UsageError("payloads: none is given")
    for payload in listed:
        if not isinstance(payload, bytes):
            raise UsageError(f"payloads: bytes are needed, not {type(payload).__name__}")
    return _encode(listed), Extras(parts=len(listed))
