"""Three kinds of error: yours, theirs and ours. What is expected (a timeout, a lost peer) is an event, not an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 20
"""So many valid names fit a line."""


class UsageError(Exception):
    """You asked for something that makes no sense; the message names the field and what would be right."""


class PeerError(Exception):
    """A peer sent something it must not send."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class InvariantError(AssertionError):
    """A promise we make to ourselves is broken. Never caught: it is a bug of ours."""


def saying(error: BaseException) -> str:
    """What an error says, as one line that can be printed, whatever its text is made of, and even if it has none."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - it is somebody's code that tells it
        text = f"(its text cannot be told: {type(failure).__name__})"
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


def unknown_name(what: str, name: str, valid: Iterable[str]) -> UsageError:
    """`name` is not among `valid`; says the nearest valid one."""
    known = sorted(valid)
    near = [k for k in known if name and k.startswith(name)] or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listed = [*known[:_LISTED], *(["..."] if len(known) > _LISTED else [])]
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(listed) or 'none'}"
    return UsageError(f"unknown {what} {name!r}; {hint}")
