"""The source's structural statements, E1 to E14, each decided by one run: whether it held, and what was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ordercast.experiments.ginger.setting import CLIENTS, DEGREE, FAILING
from ordercast.experiments.ginger.watch import RepairWatch
from ordercast.experiments.ginger.watch_tree import ACCEPTED, WatchedRequest
from ordercast.experiments.kit.study import Row

Finding = tuple[bool | None, str]
"""Whether it holds in this run (None: the run has nothing to say), and what was seen."""
_SILENT: Finding = (None, "")
_MOST_NAMED = 3


class SeenTree:
    """One finished run: what was watched, and which checks of the judge failed."""

    def __init__(self, parameters: Row, watch: RepairWatch, fault_ns: int, checks: Mapping[str, str]) -> None:
        self.scenario = str(parameters["scenario"])
        self.view_order = str(parameters["view_order"])
        self.watch = watch
        self.tree = watch.tree
        self.fault_ns = fault_ns
        self.checks = checks
        self.dead = set(FAILING[self.scenario])


def findings(seen: SeenTree) -> Row:
    """Columns `E1`, `E1_seen`, ... of the run."""
    row: Row = {}
    for name, look in _STATEMENTS.items():
        row[name], row[f"{name}_seen"] = look(seen)
    return row


def _views_follow(seen: SeenTree) -> Finding:
    tree = seen.tree
    wrong = [name for name, view in tree.views().items() if view != tree.expected_views()[name]]
    problems = [*tree.not_told, *(f"{name} sees another tree in the end" for name in wrong)]
    return not problems, _problems(problems) or f"{tree.changes} changes, all told at once; views right in the end"


def _view_contents(seen: SeenTree) -> Finding:
    of_4, of_7 = (seen.watch.before.get(name, {}) for name in ("b4", "b7"))
    expected = {"b0": (2, "ancestor"), "b5": (2, "sibling"), "b2": (3, "uncle"), "b3": (3, "uncle")}
    right = of_4 == expected and set(of_7) == {"b0", "b1", "b2"}
    told = ", ".join(f"{node} {kind} ({hops})" for node, (hops, kind) in sorted(of_4.items()))
    return right, f"b4 sees {told}; b7 sees {', '.join(sorted(of_7))}"


def _dead_disappear(seen: SeenTree) -> Finding:
    if not seen.dead:
        return _SILENT
    views = {name: set(view) for name, view in seen.tree.views().items()} | seen.tree.client_views()
    left = [f"{name} sees {', '.join(sorted(view & seen.dead))}" for name, view in views.items() if view & seen.dead]
    return not left, _problems(left) or f"{', '.join(sorted(seen.dead))} in none of {len(views)} views"


def _free_connections(seen: SeenTree) -> Finding:
    tree = seen.tree
    problems = list(tree.wrong_residuals)
    before = seen.watch.residuals_before.get("b7")
    if before != 1:
        problems.append(f"b7 begins with {before} free")
    after = tree.residual_after_loss.get("b7")
    if "b3" in seen.dead and after != 2:
        problems.append(f"b7 has {after} free after the loss of its parent")
    told = "b7 had 1 free" if after is None else f"b7 had 1 free, {after} after the loss of its parent"
    return not problems, _problems(
        problems
    ) or f"{DEGREE} minus neighbours after each of {tree.changes} changes; {told}"


def _elects_2(seen: SeenTree) -> Finding:
    if seen.scenario != "S2":
        return _SILENT
    tree = seen.tree
    lost = {name: tree.residual_after_loss.get(name) for name in ("b1", "b2", "b3")}
    right = tree.roots() == ["b2"] and lost == {"b1": 1, "b2": 2, "b3": 2}
    named = ", ".join(f"{name} {value}" for name, value in sorted(tree.election_values.items()))
    free = ", ".join(f"{name} {value}" for name, value in lost.items())
    return right, f"root {', '.join(tree.roots())}; free after the loss: {free}; claims were made by {named}"


def _one_room_left(seen: SeenTree) -> Finding:
    if seen.scenario != "E6":
        return _SILENT
    requests = _after_fault(seen, "b7")
    right = len(requests) == 1 and requests[0].asked == "b0" and requests[0].answer == ACCEPTED
    return right, f"b7 asks {_told(requests)}"


def _second_is_refused(seen: SeenTree) -> Finding:
    if seen.scenario != "S1":
        return _SILENT
    by = {name: _after_fault(seen, name) for name in ("b4", "b5")}
    first, second = sorted(by, key=lambda name: by[name][0].answer != ACCEPTED if by[name] else True)
    told = f"{first} asks {_told(by[first])}; {second} asks {_told(by[second])}"
    answers = [(request.asked, request.answer) for request in by[second]]
    if seen.view_order == "hop-order" and second == "b5":
        return answers == [("b0", "DEGREE"), ("b4", "TOPIC"), ("b2", ACCEPTED)], told
    right = len(by[first]) == 1 and bool(answers) and answers[0] == ("b0", "DEGREE") and answers[-1][1] == ACCEPTED
    return right, told


def _refused_find_a_place(seen: SeenTree) -> Finding:
    alive = [r for r in seen.tree.requests if r.at_ns >= seen.fault_ns and r.asker not in seen.dead]
    refused = sorted({r.asker for r in alive if r.answer not in (ACCEPTED, "none")})
    if not refused:
        return _SILENT
    lost = [name for name in refused if name in seen.tree.unattached()]
    return not lost, f"refused: {', '.join(refused)}; without a place in the end: {', '.join(lost) or 'none'}"


def _nothing_lost(seen: SeenTree) -> Finding:
    return _checks(seen, "integrity", "agreement")


def _exact_exchange(seen: SeenTree) -> Finding:
    repairs = [e for e in seen.watch.exchanges if e.at_ns >= seen.fault_ns]
    if not repairs:
        return _SILENT
    wrong = [f"{e.sender} to {e.receiver} on {e.topic}" for e in repairs if not e.exact]
    down, up = (max((e for e in repairs if e.upwards is way), key=lambda e: len(e.ids), default=None)
                for way in (False, True))  # fmt: skip
    told = [f"{e.receiver} lacked {_span(e.ids)} and got them from its {'child' if e.upwards else 'parent'} {e.sender}"
            for e in (down, up) if e is not None and e.ids]  # fmt: skip
    told.insert(0, f"{len(repairs)} exchanges, {sum(len(e.ids) for e in repairs)} publications")
    return not wrong, _problems(wrong) or "; ".join(told)


def _interrupted_complete(seen: SeenTree) -> Finding:
    """Totals that were published but not delivered everywhere when the brokers crashed."""
    if not seen.dead:
        return _SILENT
    interrupted = 0
    missing: list[str] = []
    for topic, by_client in seen.watch.deliveries.items():
        members = [client for client, (_, of) in CLIENTS.items() if of == topic]
        totals = {e.id: e for entries in by_client.values() for e in entries if e.guarantee.label == "total"}
        have = {client: {e.id for e in by_client.get(client, [])} for client in members}
        for id_, entry in totals.items():
            if entry.published_ns < seen.fault_ns and seen.watch.last_delivered[id_] >= seen.fault_ns:
                interrupted += 1
                missing += [f"{id_} at {client}" for client in members if id_ not in have[client]]
    left = seen.watch.unfinished()
    return not missing and not left, _problems(
        [*missing, *left]
    ) or f"{interrupted} totals were under way, all complete"


def _order_holds(seen: SeenTree) -> Finding:
    return _checks(seen, "fifo", "causal", "total", "total-topic", "real-time")


def _missed_before_new(seen: SeenTree) -> Finding:
    repairs = [r for r in seen.tree.repairs if r.synchronised_ms is not None and r.began_ns >= seen.fault_ns]
    if not repairs:
        return _SILENT
    end = max(r.began_ns + round((r.synchronised_ms or 0) * 1e6) for r in repairs)
    during = seen.watch.delivered_between(seen.fault_ns, end)
    holds, told = _checks(seen, "fifo", "causal", "total")
    return holds, f"{during} deliveries during the repairs; {told}"


def _client_moves(seen: SeenTree) -> Finding:
    if seen.scenario != "S3":
        return _SILENT
    moves = [outage for outage in seen.watch.outages if outage.client == "c0"]
    holds, told = _checks(seen, "integrity", "agreement")
    if not moves or moves[-1].ms is None:
        return False, f"c0 has no edge in the end; {told}"
    return holds, f"c0 is at {moves[-1].edge} after {moves[0].ms or 0:.0f} ms; {told}"


_STATEMENTS: dict[str, Callable[[SeenTree], Finding]] = {
    "E1": _views_follow, "E2": _view_contents, "E3": _dead_disappear, "E4": _free_connections, "E5": _elects_2,
    "E6": _one_room_left, "E7": _second_is_refused, "E8": _refused_find_a_place, "E9": _nothing_lost,
    "E10": _exact_exchange, "E11": _interrupted_complete, "E12": _order_holds, "E13": _missed_before_new,
    "E14": _client_moves,
}  # fmt: skip


def _checks(seen: SeenTree, *names: str) -> Finding:
    verdicts = [seen.checks.get(name, "missing") for name in names]
    holds = False if "fail" in verdicts else True if set(verdicts) == {"pass"} else None
    return holds, ", ".join(f"{name}: {verdict}" for name, verdict in zip(names, verdicts, strict=True))


def _after_fault(seen: SeenTree, asker: str) -> list[WatchedRequest]:
    return [request for request in seen.tree.of(asker) if request.at_ns >= seen.fault_ns]


def _told(requests: list[WatchedRequest]) -> str:
    return ", ".join(f"{r.asked} ({r.answer})" for r in requests) or "nobody"


def _span(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= _MOST_NAMED else f"{ids[0]} to {ids[-1]} ({len(ids)} in all)"


def _problems(problems: list[str]) -> str:
    more = f" and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    return "; ".join(problems[:_MOST_NAMED]) + more
