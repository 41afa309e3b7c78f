"""Filters that nodes follow, as their rows say them: which topics each takes in."""

from __future__ import annotations

import re
from collections.abc import Sequence


def taken_in(pattern: str, topics: Sequence[str]) -> list[int]:
    """The places of the topics that the filter takes in: `*` is any one segment, `>` at the end one or more."""
    segments = (".+" if part == ">" else "[^.]+" if part == "*" else re.escape(part) for part in pattern.split("."))
    whole = re.compile(r"\.".join(segments), re.DOTALL)
    return [place for place, topic in enumerate(topics) if whole.fullmatch(topic)]
