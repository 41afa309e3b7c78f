"""Promises to processes of an overlay, checked from their definitions: once each, in causal order, everything at rest.

A history is what one process has delivered (the number of a message), published (its complement) and when it joined. A
joiner inherits what is unknown here: it must deliver from some message of each origin on, everything, in order.
"""

from __future__ import annotations

from ordercast.explore.overlays.scope import Post
from ordercast.explore.overlays.table import JOINED
from ordercast.explore.promises.properties import Histories, History, Violation, name


class OverlayPromises:
    """The promises of one configuration; every combination of histories is looked at once."""

    def __init__(self, posts: tuple[Post, ...]) -> None:
        self._posts = posts
        self._known: dict[Histories, Violation | None] = {}
        self.outcomes: set[Histories] = set()
        """The histories of all moments at rest."""

    def safety(self, histories: Histories) -> Violation | None:
        """The first promise that this moment breaks, if any."""
        if histories not in self._known:
            self._known[histories] = self._integrity(histories) or self._order(histories)
        return self._known[histories]

    def _integrity(self, histories: Histories) -> Violation | None:
        published = {~entry for history in histories for entry in history if entry < 0}
        for process, history in enumerate(histories):
            delivered = _delivered(history)
            if len(set(delivered)) < len(delivered):
                return Violation("integrity", f"n{process} delivers a message twice")
            if not set(delivered) <= published:
                return Violation("integrity", f"n{process} delivers what nobody has published")
        return None

    def _order(self, histories: Histories) -> Violation | None:
        pasts = self._pasts(histories)
        for process, history in enumerate(histories):
            inherits = JOINED in history
            order = _delivered(history)
            for place, message in enumerate(order):
                missing = pasts[message] - set(order[:place])
                if inherits:
                    missing &= set(order)  # What it inherited it never delivers; anything else would come too late.
                if missing:
                    first = min(missing)
                    return Violation("causal", f"n{process} delivers {name(message)} before {name(first)}")
        return None

    def _pasts(self, histories: Histories) -> dict[int, set[int]]:
        """Of every message: all that its publisher had published or delivered before, and the pasts of those."""
        direct: dict[int, set[int]] = {}
        for history in histories:
            for place, entry in enumerate(history):
                if entry < 0:
                    direct[~entry] = {~e if e < 0 else e for e in history[:place] if e != JOINED}
        pasts: dict[int, set[int]] = {}

        def past(message: int) -> set[int]:
            if message not in pasts:
                pasts[message] = set().union(*({m} | past(m) for m in direct.get(message, ())))
            return pasts[message]

        return {message: past(message) for message in range(len(self._posts))}

    def agreement(self, histories: Histories, alive: tuple[bool, ...] = ()) -> Violation | None:
        """At rest everybody who is up has what anybody has who is up."""
        living = [p for p in range(len(histories)) if not alive or alive[p]]
        known = {message for p in living for message in _delivered(histories[p])}
        for process in living:
            missing = known - set(_delivered(histories[process]))
            if JOINED in histories[process]:
                missing = self._after_first(missing, histories[process])
            if missing:
                return Violation("agreement", f"n{process} never delivers {name(min(missing))}")
        return None

    def _after_first(self, missing: set[int], history: History) -> set[int]:
        """Of what a joiner lacks: that which comes after something of the same origin that it has."""
        got: dict[int, int] = {}
        for message in _delivered(history):
            got.setdefault(self._posts[message].client, message)
        return {m for m in missing if got.get(self._posts[m].client, len(self._posts)) < m}


def _delivered(history: History) -> list[int]:
    return [entry for entry in history if 0 <= entry < JOINED]
