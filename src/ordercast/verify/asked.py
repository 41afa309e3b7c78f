"""Options of the judge: what the caller says about a trace, and which checks to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ordercast.trace.store import NOT_DECODABLE, TraceError

if TYPE_CHECKING:
    from ordercast.verify.load import LoadedTrace


class JudgeOptions(msgspec.Struct, frozen=True):
    """Options of the judge. Where one is None, what the run says of itself counts."""

    checks: list[str] | None = None
    scope: str | None = None
    order_scope: str | None = None
    members: dict[str, list[str]] | None = None
    """Topic to members from the beginning, whatever the trace says about who was one then."""
    own_deliveries: bool | None = None
    """Whether the trace records that nodes deliver what they published themselves, and they have to."""
    one_clock: bool = False
    """The caller vouches that all times come from one clock."""
    causes: dict[str, list[str]] | None = None
    """Node to the publishers whose messages affect what it publishes; else everything that it delivers does."""
    complete: bool = False
    """The caller vouches that all that was under way at the end had arrived, and is in the trace."""

    def groups_of(self, trace: LoadedTrace) -> dict[str, list[str]] | None:
        if self.members is not None:
            return self.members
        return trace.manifest.groups if trace.manifest else None

    def is_dated(self, trace: LoadedTrace) -> bool:
        """Whether the times of different nodes may be compared."""
        return self.one_clock or (trace.manifest is not None and trace.manifest.clock == "global")

    def is_complete(self, trace: LoadedTrace) -> bool | None:
        if self.complete:
            return True
        return trace.manifest.drained if trace.manifest else None


def read_members(path: Path) -> dict[str, list[str]]:
    """A file that says who was a member: a JSON object, topic to list of nodes."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    except NOT_DECODABLE as error:
        raise TraceError(f"{path}: not an object of topics and lists of nodes: {error}") from None
