"""Properties of every state, written as the definitions say, for histories of a handful of messages.

Shares no code with the judge of traces or with the protocols, so that one of them can be wrong without the others.
A history is what one node did, in order: `i` for the delivery of message i, `~i` for its publication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import msgspec

from ordercast.core.messages import Guarantee
from ordercast.explore.scope.configurations import Configuration

History = tuple[int, ...]
Histories = tuple[History, ...]


class Violation(msgspec.Struct, frozen=True):
    """A promise that does not hold, and why in one line."""

    check: str
    detail: str


Check = Callable[[Histories, Configuration], Violation | None]


def safety_checks(guarantee: Guarantee) -> tuple[Check, ...]:
    """Checks that a protocol with this guarantee must pass at every moment."""
    match guarantee:
        case Guarantee.ATOMIC | Guarantee.TOTAL:
            return (integrity, prefix, acyclic)
        case Guarantee.CAUSAL | Guarantee.OPTIMISTIC_CAUSAL:
            return (integrity, causal)
        case Guarantee.FIFO:
            return (integrity, fifo)
        case _:
            return (integrity,)


def first_violation(checks: Sequence[Check], histories: Histories, configuration: Configuration) -> Violation | None:
    for check in checks:
        violation = check(histories, configuration)
        if violation is not None:
            return violation
    return None


def integrity(histories: Histories, configuration: Configuration) -> Violation | None:
    """At most once, and only at destinations."""
    for node, history in enumerate(histories):
        due = configuration.due[node]
        deliveries = delivered(history)
        for i, message in enumerate(deliveries):
            if message not in due:
                return Violation("integrity", f"n{node} delivers {name(message)}, which is not addressed to it")
            if message in deliveries[:i]:
                return Violation("integrity", f"n{node} delivers {name(message)} twice")
    return None


def agreement(histories: Histories, configuration: Configuration) -> Violation | None:
    """At rest every message has been delivered by all its destinations: nobody is blocked."""
    missing = [
        f"n{node} never delivers {' and '.join(name(m) for m in sorted(lost))}"
        for node, history in enumerate(histories)
        if (lost := configuration.due[node] - set(history))
    ]
    return Violation("agreement", f"nothing is left to happen, but {', '.join(missing)}") if missing else None


def prefix(histories: Histories, configuration: Configuration) -> Violation | None:
    """Two common destinations of two messages deliver the same one of them first."""
    for a, b in combinations(range(configuration.messages), 2):
        common = [n for n in configuration.destinations[a] if n in configuration.destinations[b]]
        first = {n: m for n in common if (m := _first_of(histories[n], a, b)) is not None}
        for p, q in combinations(first, 2):
            if first[p] != first[q]:
                other = {a: b, b: a}
                return Violation(
                    "prefix",
                    f"n{p} delivers {name(first[p])} before {name(other[first[p]])}, "
                    f"n{q} delivers {name(first[q])} before {name(other[first[q]])}",
                )
    return None


def acyclic(histories: Histories, _configuration: Configuration) -> Violation | None:
    """The union of all nodes' delivery orders has no cycle."""
    cycle = _shortest_cycle(_orders(histories))
    return None if cycle is None else Violation("acyclic", f"a cycle of deliveries: {cycle}")


def real_time(histories: Histories, answered_before: Sequence[int]) -> Violation | None:
    """No message precedes one whose client had its answer before the message was sent.

    `answered_before[i]` has a bit for every message that was answered when message i was sent.
    """
    before = _orders(histories)
    for later, bits in enumerate(answered_before):
        for earlier in range(len(answered_before)):
            if bits >> earlier & 1:
                before.setdefault(earlier, {})[later] = f"{name(earlier)} answered before {name(later)} was sent"
    cycle = _shortest_cycle(before)
    return None if cycle is None else Violation("real-time", f"a cycle of deliveries and answers: {cycle}")


def fifo(histories: Histories, configuration: Configuration) -> Violation | None:
    """Messages of one node are delivered in the order in which it published them."""
    past = {
        message: {~earlier for earlier in histories[node][:at] if earlier < 0}
        for node, at, message in _publications(histories)
    }
    return _past_first("fifo", past, histories, configuration)


def causal(histories: Histories, configuration: Configuration) -> Violation | None:
    """No node delivers a message before one that happened before it."""
    past: dict[int, set[int]] = {
        message: {event if event >= 0 else ~event for event in histories[node][:at]}
        for node, at, message in _publications(histories)
    }
    for _ in past:  # After as many rounds as there are messages nothing new can be reached.
        for message, earlier in past.items():
            past[message] = earlier.union(*(past.get(e, set()) for e in earlier))
    return _past_first("causal", past, histories, configuration)


def answers(answered: int, messages: int) -> Violation | None:
    """At rest every client has its answer; `answered` has a bit for every message that was answered."""
    waiting = [name(i) for i in range(messages) if not answered >> i & 1]
    if not waiting:
        return None
    return Violation("answer", f"nothing is left to happen, but the client of {waiting[0]} has no answer")


def delivered(history: History) -> History:
    return tuple(event for event in history if event >= 0)


def name(message: int) -> str:
    return f"m{message + 1}"


def _publications(histories: Histories) -> list[tuple[int, int, int]]:
    """(node, position in its history, message) of every publication."""
    return [
        (node, at, ~event) for node, history in enumerate(histories) for at, event in enumerate(history) if event < 0
    ]


def _past_first(
    check: str, past: dict[int, set[int]], histories: Histories, configuration: Configuration
) -> Violation | None:
    for node, history in enumerate(histories):
        due = configuration.due[node]
        deliveries = delivered(history)
        for at, message in enumerate(deliveries):
            missing = (past.get(message, set()) & due) - set(deliveries[:at])
            if missing:
                earlier = name(min(missing))
                return Violation(
                    check, f"n{node} delivers {name(message)} without {earlier}, which was published before it"
                )
    return None


def _first_of(history: History, a: int, b: int) -> int | None:
    return next((event for event in history if event in {a, b}), None)


def _orders(histories: Histories) -> dict[int, dict[int, str]]:
    """For each message those that come right after it somewhere, with words that say where."""
    before: dict[int, dict[int, str]] = {}
    for node, history in enumerate(histories):
        for earlier, later in pairwise(delivered(history)):
            words = f"{name(earlier)} before {name(later)} at n{node}"
            before.setdefault(earlier, {}).setdefault(later, words)
    return before


def _shortest_cycle(before: dict[int, dict[int, str]]) -> str | None:
    """A shortest cycle, in words."""
    cycles = [cycle for start in sorted(before) if (cycle := _cycle_through(before, start))]
    if not cycles:
        return None
    cycle = min(cycles, key=len)
    return ", ".join(before[a][b] for a, b in pairwise([*cycle, cycle[0]]))


def _cycle_through(before: dict[int, dict[int, str]], start: int) -> list[int] | None:
    """Breadth first from `start` back to it."""
    paths = [[start]]
    seen = set()
    for path in paths:
        for later in sorted(before.get(path[-1], {})):
            if later == start:
                return path
            if later not in seen:
                seen.add(later)
                paths.append([*path, later])
    return None
