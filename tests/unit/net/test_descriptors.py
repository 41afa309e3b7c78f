"""A reserve of file descriptors is for a process's own files: connections never take it."""

from __future__ import annotations

import resource

import pytest

from ordercast.net.wire.descriptors import takes_the_last


class Accepted:
    """A socket that has this number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


@pytest.mark.parametrize(
    ("limit", "number", "last"),
    [(1024, 639, False), (1024, 640, True), (256, 127, False), (256, 128, True), (-1, 1 << 20, False)],
)
def test_a_connection_that_takes_a_reserved_descriptor_has_to_go(
    limit: int, number: int, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
    assert takes_the_last(Accepted(number)) is last
