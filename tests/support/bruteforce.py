"""The checks straight from their definitions, quantifier by quantifier, in plain Python sets. Slow, and obviously so.

Shares nothing with the judge: it starts from the rows of a trace and names what it finds by message and receiver. A
receiver is (node, life): a node that comes back without its state is a new one.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest

Receiver = tuple[str, int]
Event = tuple[Receiver, int]  # whose, and the seq
Moment = tuple[int, int]  # seq and time
NEVER: Moment = (2**62, 2**62)

IMPLIED = {
    "eventual": {"integrity", "agreement"},
    "fifo": {"integrity", "agreement", "fifo"},
    "causal": {"integrity", "agreement", "fifo", "causal", "optimistic-causal"},
    "total": {"integrity", "agreement", "fifo", "causal", "optimistic-causal", "total"},
    "atomic": {"integrity", "agreement", "prefix", "acyclic"},
    "optimistic-causal": {"integrity", "optimistic-causal"},
}


class Definition:
    """One trace, and every check as a set of violations."""

    def __init__(
        self, rows: list[dict[str, Any]], manifest: Manifest | None, scope: str, order_scope: str = "session",
        members: dict[str, list[str]] | None = None, own_deliveries: bool | None = None,
    ) -> None:  # fmt: skip
        self.manifest = manifest
        self.groups = members if members is not None else manifest.groups if manifest else None
        self.own_deliveries = own_deliveries
        self.scope = scope
        self.order_scope = order_scope
        self._past_by_key: dict[str, set[str]] = {}
        self.rows = sorted(rows, key=lambda row: (row["node"], row["seq"]))
        self._read_lives()
        self._read_events()
        self._past_in_topic: dict[str, set[Event]] = {}
        self.past = {m: self._past_of(self.publish[m], None) for m in self.messages}

    def early(self) -> set[tuple[str, Receiver, int]]:
        """Deliveries that happened before their own publication."""
        return {(m, p, seq) for (p, m), seq in self.pos.items() if (p, seq) in self.past[m]}

    def _read_lives(self) -> None:
        life: dict[str, int] = {}
        named = set(self.manifest.nodes) if self.manifest else set()
        for members in (self.groups or {}).values():
            named |= set(members)
        for row in self.rows:
            named |= set(row.get("dst") or ())
        self.receivers: list[Receiver] = [(node, 0) for node in named]
        self.owner: list[Receiver] = []
        self.recover_time: dict[Receiver, int] = {}
        up: dict[Receiver, bool] = {}
        self.died_ns: dict[Receiver, int] = {}
        for row in self.rows:
            node = row["node"]
            if row["kind"] == "recover" and (row.get("info") or {}).get("state") == "lost":
                if up.get((node, life.get(node, 0)), True):
                    self.died_ns[node, life.get(node, 0)] = row["time_ns"]
                up[node, life.get(node, 0)] = False
                life[node] = life.get(node, 0) + 1
                self.recover_time[node, life[node]] = row["time_ns"]
            receiver = (node, life.get(node, 0))
            self.receivers += [(node, n) for n in range(receiver[1] + 1)]
            self.owner.append(receiver)
            given_up = row["kind"] == "leave" and "lost" in (row.get("info") or {})
            if row["kind"] in ("crash", "recover") or given_up:
                up[receiver] = row["kind"] == "recover"
                self.died_ns[receiver] = row["time_ns"]
        self.receivers = sorted(set(self.receivers))
        self.alive = {receiver: up.get(receiver, True) for receiver in self.receivers}

    def _read_events(self) -> None:
        self.publish: dict[str, Event] = {}
        self.row_of: dict[str, dict[str, Any]] = {}
        self.integrity: set[tuple[str, str, Receiver, int]] = set()
        self.log: dict[Receiver, list[tuple[int, str, str]]] = {receiver: [] for receiver in self.receivers}
        for row, owner in zip(self.rows, self.owner, strict=True):
            if row["kind"] == "publish":
                if row["msg"] in self.publish:
                    self.integrity.add(("republished", row["msg"], owner, row["seq"]))
                else:
                    self.publish[row["msg"]] = (owner, row["seq"])
                    self.row_of[row["msg"]] = row
                    self.log[owner].append((row["seq"], "publish", row["msg"]))
        for row, owner in zip(self.rows, self.owner, strict=True):
            if row["kind"] == "deliver":
                if row["msg"] not in self.publish:
                    self.integrity.add(("invented", row["msg"], owner, row["seq"]))
                elif any(kind == "deliver" and msg == row["msg"] for _, kind, msg in self.log[owner]):
                    self.integrity.add(("duplicate", row["msg"], owner, row["seq"]))
                else:
                    self.log[owner].append((row["seq"], "deliver", row["msg"]))
        for log in self.log.values():
            log.sort()
        self.messages = list(self.publish)
        self.pos = {(p, m): seq for p, log in self.log.items() for seq, kind, m in log if kind == "deliver"}

    def topic(self, m: str) -> str | None:
        topic: str | None = self.row_of[m].get("topic")
        return topic

    def _past_of(self, event: Event, topic: tuple[str | None] | None) -> set[Event]:
        """Every event that happened before `event`; with `topic`, along events of that topic only."""
        seen: set[Event] = set()
        todo = [event]
        while todo:
            owner, seq = todo.pop()
            for s, kind, m in self.log[owner]:
                if topic is not None and self.topic(m) != topic[0]:
                    continue
                causes = [(owner, s)] if s < seq else []
                if kind == "deliver" and s <= seq:
                    causes.append(self.publish[m])
                for cause in causes:
                    if cause not in seen:
                        seen.add(cause)
                        todo.append(cause)
        return seen

    def before(self, m1: str, m2: str) -> bool:
        """m1 -> m2."""
        if self.order_scope == "key":
            return m1 in self._closed_past(m2)
        if self.scope == "topic":
            if self.topic(m1) != self.topic(m2):
                return False
            if m2 not in self._past_in_topic:
                self._past_in_topic[m2] = self._past_of(self.publish[m2], (self.topic(m2),))
            return self.publish[m1] in self._past_in_topic[m2]
        return self.publish[m1] in self.past[m2]

    def directly_before(self, m1: str, m2: str) -> bool:
        """The publisher of m2 had published or delivered m1 when it published m2."""
        owner, seq = self.publish[m2]
        if self.scope == "topic" and self.topic(m1) != self.topic(m2):
            return False
        delivered = any(m == m1 and kind == "deliver" and s < seq for s, kind, m in self.log[owner])
        return delivered or self.program_order(m1, m2)

    def program_order(self, m1: str, m2: str) -> bool:
        """One publisher published m1 before m2, and that counts."""
        if self.publish[m1][0] != self.publish[m2][0] or self.publish[m1][1] >= self.publish[m2][1]:
            return False
        return self.order_scope == "session" or bool(self.keys(m1) & self.keys(m2))

    def _closed_past(self, m2: str) -> set[str]:
        """Everything before m2 by the transitive closure of `directly_before`."""
        if m2 not in self._past_by_key:
            direct = [m1 for m1 in self.messages if m1 != m2 and self.directly_before(m1, m2)]
            self._past_by_key[m2] = set(direct).union(*(self._closed_past(m1) for m1 in direct))
        return self._past_by_key[m2]

    def shortest_chain(self, p: Receiver, m2: str, check: str) -> int:
        """The fewest messages in a chain that ends in m2 and begins with one that p should have delivered before."""
        held = self.held(check)
        level, length, seen = {m2}, 1, {m2}
        while True:
            level = {m1 for m1 in self.messages for m in level if self.directly_before(m1, m)} - seen
            assert level, "no chain"
            seen |= level
            length += 1
            for m1 in level & set(held):
                late = self.pos.get((p, m1), -1) > self.pos[p, m2]
                if late or (check == "causal" and self.lets_overtake(p, m1, m2)):
                    return length

    def shortest_cycle(self, held: list[str]) -> int:
        """The fewest messages that go round in a circle of delivery orders."""
        precedes = {
            (a, b)
            for p in self.receivers
            for a, b in product(held, held)
            if (p, a) in self.pos and (p, b) in self.pos and self.pos[p, a] < self.pos[p, b]
        }
        walks = set(precedes)
        for length in range(1, len(held) + 1):
            if any(a == b for a, b in walks):
                return length
            walks = {(a, d) for a, b in walks for c, d in precedes if b == c}
        raise AssertionError("no cycle")

    def obliges(self, m: str) -> set[str]:
        row = self.row_of[m]
        claim = self.manifest.guarantee if self.manifest else "mixed"
        guarantee = row.get("guarantee") or (claim if claim != "mixed" else "atomic" if row.get("dst") else "causal")
        checks = set(IMPLIED[guarantee])
        if "total" in checks and self.topic(m) is None:
            checks = (checks - {"total"}) | {"prefix", "acyclic"}
        if "total" in checks and self.manifest is not None:
            checks |= set(self.manifest.claims) & {"total-topic", "real-time"}
        if self.topic(m) is not None and self.manifest is not None:
            checks |= set(self.manifest.claims) & {"one-order"}
        return checks

    # Who must deliver what.

    def _after(self, m: str, receiver: Receiver, seq: int, time_ns: int) -> bool:
        """Was m published after the row of `receiver` at `seq`, by the clock or by what its publisher could know?"""
        if self.manifest is not None and self.manifest.clock == "global":
            return bool(self.row_of[m]["time_ns"] > time_ns)
        known = self.past[m] | {self.publish[m]}
        return any(owner == receiver and s > seq for owner, s in known)

    def _follows_on(self, m: str, receiver: Receiver, begin: int, stop: Moment | None) -> bool:
        """Without a clock: did it deliver an earlier one of the same publisher and topic in the stay?"""
        if self.manifest is not None and self.manifest.clock == "global":
            return False
        publisher, at = self.publish[m]
        return any(
            owner == receiver and begin < seq and (stop is None or seq < stop[0])
            and self.publish[x][0] == publisher and self.publish[x][1] < at
            and self.topic(x) == self.topic(m) and not self.row_of[x].get("dst")
            for (owner, x), seq in self.pos.items()
        )  # fmt: skip

    def _stays(self, receiver: Receiver, topic: str, until: int | None = None) -> list[Any]:
        """Begin, where it began to end, where its end was complete, and whether it only ended with the run.

        A begin of None is before everything, an end of None never comes; nothing comes after a moment of NEVER. With
        `until`, as it was before the row of that seq.
        """
        in_group = receiver[0] in (self.groups or {}).get(topic, [])
        mine = [row for row, owner in zip(self.rows, self.owner, strict=True) if owner == receiver]
        mine = [row for row in mine if until is None or row["seq"] < until]
        begin: Moment | str | None = "out"
        if in_group:
            first = [
                r for r in mine if r["kind"] in ("subscribe", "unsubscribe", "join", "leave", "publish", "deliver")
            ]
            if receiver[1] > 0:
                begin = (-1, self.recover_time[receiver])
            elif not (first and first[0]["kind"] == "join"):
                begin = None
        stays: list[Any] = []
        stop: Moment | None = None
        confirmed: Any = begin
        for row in mine:
            now, info = (row["seq"], row["time_ns"]), row.get("info") or {}
            pending = "pending" in info
            enters = (row["kind"] == "subscribe" and row["topic"] == topic) or (row["kind"] == "join" and in_group)
            exits = (row["kind"] == "unsubscribe" and row["topic"] == topic) or row["kind"] == "leave"
            if enters:
                if stop is not None:
                    stays.append((begin, stop, NEVER, False))
                    begin, stop = "out", None
                if begin in ("out", NEVER):
                    confirmed = NEVER if pending else now
                    begin = None if info.get("from") == "everything" and not pending else confirmed
                    if info.get("from") == "filter" and not pending and not stays:
                        begin = self._followed(receiver, info["filter"], now)
                elif info.get("from") == "membership":
                    begin = confirmed
            elif exits and begin != "out" and pending:
                stop = stop or now
            elif exits and begin != "out":
                stays.append((begin, stop or now, now, "end" in info and stop is None))
                begin, stop = "out", None
        if begin != "out":
            stays.append((begin, stop, NEVER if stop is not None else None, False))
        told = any(row["kind"] in ("subscribe", "unsubscribe") and row["topic"] == topic for row in mine)
        if not told and not in_group and until is None:
            stays = [stay for filter_ in self._filters(mine, topic) for stay in self._stays(receiver, filter_)]
            stays.sort(key=lambda stay: (stay[1] is None, stay[1] or (0, 0)))
        return stays

    def _filters(self, mine: list[dict[str, Any]], topic: str) -> list[str]:
        """Those that it has followed at any time and that take the topic in."""
        rows = [row for row in mine if row["kind"] == "subscribe"]
        filters = {row["topic"] for row in rows if (row.get("info") or {}).get("filter") == row["topic"]}
        return sorted(filter_ for filter_ in filters - {topic} if _takes_in(filter_.split("."), topic.split(".")))

    def _followed(self, receiver: Receiver, filter_: str, now: Moment) -> Moment | None:
        """Where the open stay of a filter began that led to a subscription; now, if there is none."""
        for begin, _, end, _ in self._stays(receiver, filter_, until=now[0])[-1:]:
            if end in (None, NEVER):
                return begin if begin is None else min(begin, now)
        return now

    def _own_implied(self) -> bool:
        if self.own_deliveries is not None:
            return not self.own_deliveries
        return self.manifest is None and not any(self.publish[m][0] == p for p, m in self.pos)

    def _duty(self, p: Receiver, m: str) -> tuple[str, int | None, bool]:
        """owes, may or must not; what is owed up to which seq (None: for good), and whether it is asked for at the end.

        Owed is what was published during a stay (the last it may be): after it began, and not after it began to end.
        """
        dst, topic = self.row_of[m].get("dst"), self.topic(m)
        for_good = ("owes", None, self.alive[p])
        if dst:
            if p[0] not in dst:
                return "must not", None, False
            fresh = p[1] == 0 or self._after(m, p, -1, self.recover_time[p])
            return for_good if fresh else ("may", None, False)
        assert topic is not None
        if self.groups is None and not any(row["kind"] == "subscribe" for row in self.rows):
            if not any(q == p and self.topic(x) == topic and not self.row_of[x].get("dst") for q, x in self.pos):
                return "must not", None, False
            fresh = p[1] == 0 or self._after(m, p, -1, self.recover_time[p]) or self._follows_on(m, p, -1, None)
            return for_good if fresh else ("may", None, False)
        may = False
        for begin, stop, end, stayed in reversed(self._stays(p, topic)):
            begun = begin is None or self._after(m, p, *begin) or self._follows_on(m, p, begin[0], stop)
            if stop is None and begun:
                return for_good
            if stop is not None and begun and not self._after(m, p, *stop):
                return "owes", stop[0], stayed
            may = may or end is None or not self._after(m, p, *end)
        return ("may" if may else "must not"), None, False

    def decide_duties(self) -> None:
        self.duties = {(p, m): self._duty(p, m) for p, m in product(self.receivers, self.messages)}
        own = self._own_implied()
        self.owes = {
            (p, m): (due, asked)
            for (p, m), (duty, due, asked) in self.duties.items()
            if duty == "owes" and not (own and self.publish[m][0] == p and (p, m) not in self.pos)
        }
        self.addressed = {pair for pair, (due, _) in self.owes.items() if due is None} | set(self.pos)
        for (p, m), seq in self.pos.items():
            if self.duties[p, m][0] == "must not":
                self.integrity.add(("not for it", m, p, seq))
            if self.manifest is not None and self.manifest.clock == "global":
                times = {(owner, row["seq"]): row["time_ns"] for row, owner in zip(self.rows, self.owner, strict=True)}
                if times[p, seq] < times[self.publish[m]]:
                    self.integrity.add(("before by clock", m, p, seq))

    def counts(self) -> dict[str, int]:
        """How many deliveries were owed, made, missing, excused."""
        lacking = {
            (p, m): asked and self._left_to_give(m)
            for (p, m), (_, asked) in self.owes.items()
            if (p, m) not in self.pos
        }
        missing = sum(lacking.values())
        excused = sum(1 for pair, due in lacking.items() if not due and not self._after_death(*pair))
        made = sum(1 for pair in self.owes if pair in self.pos)
        return {"owed": made + missing + excused, "made": made, "missing": missing, "excused": excused}

    def _after_death(self, p: Receiver, m: str) -> bool:
        """Published, by the clock, when p was dead already."""
        clock = self.manifest is not None and self.manifest.clock == "global"
        for_good = self.owes[p, m][0] is None and not self.alive[p]
        return clock and for_good and bool(self.row_of[m]["time_ns"] > self.died_ns[p])

    def lets_overtake(self, p: Receiver, m1: str, m2: str) -> bool:
        """p delivered m2 while it owed m1, which it never delivered."""
        if (p, m1) in self.pos or (p, m1) not in self.owes:
            return False
        due = self.owes[p, m1][0]
        return due is None or self.pos[p, m2] < due

    # The checks.

    def held(self, check: str) -> list[str]:
        return [m for m in self.messages if check in self.obliges(m)]

    def _left_to_give(self, m: str) -> bool:
        """Its publisher is there in the end, or somebody delivered it: where that is not uniform, one who stayed."""
        if self.manifest is None or self.manifest.uniform:
            return self.alive[self.publish[m][0]] or any(x == m for _, x in self.pos)
        return self._stayed(self.publish[m][0]) or any(x == m and self._stayed(p) for p, x in self.pos)

    def _stayed(self, p: Receiver) -> bool:
        ways = [row for row, owner in zip(self.rows, self.owner, strict=True) if owner == p]
        ways = [row for row in ways if row["kind"] in ("join", "leave")]
        left = bool(ways) and ways[-1]["kind"] == "leave" and "end" not in (ways[-1].get("info") or {})
        assert self.manifest is not None
        return self.alive[p] and (self.manifest.leavers_pass_on or not left)

    def agreement(self) -> set[tuple[str, Receiver]]:
        return {
            (m, p)
            for m in self.held("agreement")
            for p in self.receivers
            if (p, m) in self.owes and (p, m) not in self.pos and self._left_to_give(m)
            if self.owes[p, m][1] or self._before_departure(p, m)
        }

    def _before_departure(self, p: Receiver, m: str) -> bool:
        """p delivered, while it owed m, what comes after it in an order that both keep."""
        for m2 in [m2 for q, m2 in self.pos if q == p]:
            for check, precedes in (("fifo", self._in_line), ("causal", self.before)):
                both = {check} <= self.obliges(m) & self.obliges(m2)
                if both and m2 != m and precedes(m, m2) and self.lets_overtake(p, m, m2):
                    return True
        return False

    def _in_line(self, m1: str, m2: str) -> bool:
        apart = self.scope == "topic" and self.topic(m1) != self.topic(m2)
        return not apart and self.program_order(m1, m2)

    def fifo(self) -> set[tuple[str, Receiver]]:
        return self._out_of_order(self.held("fifo"), self._in_line, skipping_counts=True)

    def causal(self) -> set[tuple[str, Receiver]]:
        return self._out_of_order(self.held("causal"), self.before, skipping_counts=True)

    def optimistic(self) -> set[tuple[str, Receiver]]:
        kept = {at: seq for at, seq in self.pos.items() if not self._is_unordered(*at, seq)}
        held = self.held("optimistic-causal")
        return {
            (m2, p)
            for p, m2 in kept
            for m1 in held
            if m2 in held and m1 != m2 and kept.get((p, m1), -1) > kept[p, m2] and self.before(m1, m2)
        }

    def _is_unordered(self, p: Receiver, m: str, seq: int) -> bool:
        """The last subscription of p to the topic of m that says anything about it, says that p keeps no order."""
        said = [
            (row.get("info") or {}).get("ordered")
            for row, owner in zip(self.rows, self.owner, strict=True)
            if owner == p and row["kind"] == "subscribe" and row.get("topic") == self.topic(m) and row["seq"] < seq
        ]
        return [one for one in said if one is not None][-1:] == ["no"]

    def _out_of_order(self, held: list[str], precedes: Any, *, skipping_counts: bool) -> set[tuple[str, Receiver]]:
        found = set()
        pairs = [(m1, m2) for m1, m2 in product(held, held) if m1 != m2 and precedes(m1, m2)]
        for p in self.receivers:
            for m1, m2 in pairs:
                if (p, m2) not in self.pos:
                    continue
                if (p, m1) in self.pos:
                    if self.pos[p, m1] > self.pos[p, m2]:
                        found.add((m2, p))
                elif skipping_counts and self.lets_overtake(p, m1, m2):
                    found.add((m2, p))
        return found

    def keys(self, m: str) -> set[tuple[str | None, str]]:
        return {(self.topic(m), key) for key in self.row_of[m].get("keys") or [""]}

    def total(self) -> tuple[set[tuple[str | None, str]], set[tuple[str, tuple[str | None, str]]]]:
        """Keys whose total messages go round in a circle, and (message, key) on different sides of a total message."""
        totals = self.held("total")
        cyclic, torn = set(), set()
        for key in {key for t in totals for key in self.keys(t)}:
            of_key = [t for t in totals if key in self.keys(t)]
            if self._unplaceable(of_key):
                cyclic.add(key)
                continue
            for t, m in product(of_key, self.messages):
                if t == m or key not in self.keys(m):
                    continue
                for p, q in product(self.receivers, self.receivers):
                    if (p, t) not in self.pos or (q, t) not in self.pos or (p, m) not in self.pos:
                        continue
                    if self.pos[p, m] > self.pos[p, t]:
                        continue
                    later = (q, m) in self.pos and self.pos[q, m] > self.pos[q, t]
                    if later or self.lets_overtake(q, m, t):
                        torn.add((m, key))
        return cyclic, torn

    def total_topic(self) -> set[str]:
        """Totals of a topic that go round in a circle with others of it, or come after such a circle."""
        held = self.held("total-topic")
        return {m for topic in {self.topic(m) for m in held} for m in self._unplaceable(self._of_topic(held, topic))}

    def one_order(self) -> set[str]:
        """The same of all messages of a topic, where the order is kept."""
        held = self.held("one-order")
        kept = {at: seq for at, seq in self.pos.items() if not self._is_unordered(*at, seq)}
        topics = {self.topic(m) for m in held}
        return {m for topic in topics for m in self._unplaceable(self._of_topic(held, topic), kept)}

    def _of_topic(self, held: list[str], topic: str | None) -> list[str]:
        return [m for m in held if self.topic(m) == topic]

    def real_time(self) -> set[tuple[str, Receiver]]:
        if self.manifest is None or self.manifest.clock != "global":
            return set()
        times = {(owner, row["seq"]): row["time_ns"] for row, owner in zip(self.rows, self.owner, strict=True)}

        def precedes(m1: str, m2: str) -> bool:
            published_ns = times[self.publish[m2]]
            delivered = any(m == m1 and times[p, seq] < published_ns for (p, m), seq in self.pos.items())
            return self.topic(m1) == self.topic(m2) and delivered

        return self._out_of_order(self.held("real-time"), precedes, skipping_counts=True)

    def acyclic(self) -> set[str]:
        return self._unplaceable(self.held("acyclic"))

    def _unplaceable(self, held: list[str], kept: dict[tuple[Receiver, str], int] | None = None) -> set[str]:
        """Messages on a cycle of the delivery orders, or after one."""
        pos = self.pos if kept is None else kept
        after: dict[str, set[str]] = {m: set() for m in held}
        for p in self.receivers:
            for m1, m2 in product(held, held):
                if (p, m1) in pos and (p, m2) in pos and pos[p, m1] < pos[p, m2]:
                    after[m1].add(m2)
        reach = {m: self._reach(after, m) for m in held}
        circular = {m for m in held if m in reach[m]}
        return circular.union(*(reach[m] for m in circular))

    @staticmethod
    def _reach(after: dict[str, set[str]], start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for m in after[todo.pop()] - seen:
                seen.add(m)
                todo.append(m)
        return seen

    def prefix(self) -> set[tuple[str, Receiver]]:
        held = self.held("prefix")

        def puts_first(p: Receiver, m: str, other: str) -> bool:
            """p is addressed by both, delivers m, and `other` later or never."""
            if (p, m) not in self.addressed or (p, other) not in self.addressed or (p, m) not in self.pos:
                return False
            return (p, other) not in self.pos or self.pos[p, other] > self.pos[p, m]

        return {
            (m2, p)
            for m1, m2 in product(held, held)
            if m1 != m2
            for p, q in product(self.receivers, self.receivers)
            if puts_first(p, m1, m2) and puts_first(q, m2, m1)
        }

    def genuine(self) -> set[tuple[str, str]]:
        concerned = {(m, p[0]) for (p, m), _ in self.duties.items() if self._ever_member(p, m)}
        handled = {(row["msg"], row["node"]) for row in self.rows if row["kind"] in ("send", "receive")}
        return {
            (m, node)
            for m, node in handled
            if m in self.publish and (m, node) not in concerned and self.publish[m][0][0] != node
        }

    def _ever_member(self, p: Receiver, m: str) -> bool:
        return self.duties[p, m][0] != "must not" or (
            not self.row_of[m].get("dst") and bool(self._stays(p, self.topic(m) or ""))
        )

    def diverged(self) -> dict[str, set[str]]:
        """By topic ('' for all): the last digests of live receivers, where at least two recorded one."""
        last: dict[tuple[Receiver, str], str] = {}
        for row, owner in zip(self.rows, self.owner, strict=True):
            digest = (row.get("info") or {}).get("digest")
            if digest is not None and self.alive[owner]:
                last[owner, row.get("topic") or ""] = digest
        topics: dict[str, list[str]] = {}
        for (_, topic), digest in last.items():
            topics.setdefault(topic, []).append(digest)
        return {topic: set(found) for topic, found in topics.items() if len(found) > 1}


def _takes_in(wanted: list[str], given: list[str]) -> bool:
    """Segment by segment."""
    if not wanted or not given:
        return wanted == given
    if wanted == [">"]:
        return True
    return wanted[0] in ("*", given[0]) and _takes_in(wanted[1:], given[1:])
