"""Promises to clients of a tree, checked from their definitions: once each, in order, and everything at rest.

A history is what one client has delivered (the number of a message) and published (its complement), in order. No code
is shared with brokers, clients or the judge of traces.
"""

from __future__ import annotations

from itertools import combinations

from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.explore.brokers.processes import LOST_SESSION
from ordercast.explore.brokers.scope import BrokerScope, ExploredClient, Talk, is_filter
from ordercast.explore.promises.properties import Histories, History, Violation, name


class Promises:
    """The promises of one configuration; every combination of histories is looked at once."""

    def __init__(self, scope: BrokerScope, talks: tuple[Talk, ...]) -> None:
        self._talks = talks
        self._owed = [
            frozenset(i for i, talk in enumerate(talks) if follows(member, talk.topic)) for member in scope.members
        ]
        self._known: dict[Histories, Violation | None] = {}
        self.outcomes: set[Histories] = set()
        """The histories of all moments at rest."""

    def safety(self, histories: Histories) -> Violation | None:
        """The first promise that this moment breaks, if any."""
        if histories not in self._known:
            self._known[histories] = self._integrity(histories) or self._order(histories) or self._total(histories)
        return self._known[histories]

    def agreement(self, histories: Histories) -> Violation | None:
        """At rest every member has everything, but for sessions that were given up: they have and owe nothing more."""
        lost = [LOST_SESSION in history for history in histories]
        delivered = {entry for history in histories for entry in history if entry >= 0}
        for client, owed in enumerate(self._owed):
            for i in sorted(owed.difference(histories[client])):
                if not lost[client] and (i in delivered or not lost[self._talks[i].client]):
                    return Violation("agreement", f"c{client} never delivers {name(i)}")
        return None

    def _integrity(self, histories: Histories) -> Violation | None:
        published = {~entry for history in histories for entry in history if entry < 0}
        for client, history in enumerate(histories):
            delivered = _delivered(history)
            for i in delivered:
                if delivered.count(i) > 1:
                    return Violation("integrity", f"c{client} delivers {name(i)} twice")
                if i not in self._owed[client] or i not in published:
                    return Violation("integrity", f"c{client} delivers {name(i)}, which it did not subscribe to")
        return None

    def _order(self, histories: Histories) -> Violation | None:
        for check, weakest, past in (
            ("fifo", Guarantee.FIFO, self._own_past),
            ("causal", Guarantee.CAUSAL, self._causal_past),
        ):
            for i, talk in enumerate(self._talks):
                if talk.guarantee < weakest:
                    continue
                before = [j for j in sorted(past(i, histories)) if self._talks[j].guarantee >= weakest]
                for client, history in enumerate(histories):
                    delivered = _delivered(history)
                    missing = [j for j in before if i in delivered and j not in delivered[: delivered.index(i)]]
                    if missing:
                        return Violation(check, f"c{client} delivers {name(i)} before {name(missing[0])}")
        return None

    def _own_past(self, message: int, histories: Histories) -> set[int]:
        """Earlier publications of the publisher on the topic."""
        return {~entry for entry in self._before(message, histories) if entry < 0 and self._same(message, ~entry)}

    def _causal_past(self, message: int, histories: Histories) -> set[int]:
        """The publisher's earlier publications and deliveries on the topic, and what came before those."""
        past: set[int] = set()
        new = {message}
        while new:
            entries = {entry for i in new for entry in self._before(i, histories) if entry != LOST_SESSION}
            new = {entry if entry >= 0 else ~entry for entry in entries} - past
            new = {i for i in new if self._same(message, i) and self._talks[i].guarantee >= Guarantee.CAUSAL}
            past |= new
        return past

    def _before(self, message: int, histories: Histories) -> History:
        history = histories[self._talks[message].client]
        return history[: history.index(~message)] if ~message in history else ()

    def _same(self, message: int, other: int) -> bool:
        return self._talks[message].topic == self._talks[other].topic

    def _total(self, histories: Histories) -> Violation | None:
        """A disagreement about a total: whoever delivers it must have the same before it as everybody else."""
        for i, talk in enumerate(self._talks):
            if talk.guarantee is not Guarantee.TOTAL:
                continue
            before = {
                client: {j for j in delivered[: delivered.index(i)] if self._same(i, j)}
                for client, history in enumerate(histories)
                if i in (delivered := _delivered(history))
            }
            for one, other in combinations(before, 2):
                if before[one] != before[other]:
                    odd = min(before[one] ^ before[other])
                    return Violation("total", f"c{one} and c{other} differ in whether {name(odd)} is before {name(i)}")
        return None


def follows(member: ExploredClient, topic: Topic) -> bool:
    """Whether one of the member's topics or filters takes it in: `*` is one word, `>` at the end one or more."""
    return any(_takes_in(pattern.split("."), topic.split(".")) for pattern in member.topics)


def _takes_in(pattern: list[str], words: list[str]) -> bool:
    if not is_filter(".".join(pattern)):
        return pattern == words
    if pattern[-1] == ">":
        pattern, words, longer = pattern[:-1], words[: len(pattern) - 1], len(words) >= len(pattern)
        return longer and _takes_in([*pattern], words) if pattern else longer
    return len(pattern) == len(words) and all(p in ("*", word) for p, word in zip(pattern, words, strict=True))


def _delivered(history: History) -> list[int]:
    return [entry for entry in history if 0 <= entry < LOST_SESSION]
