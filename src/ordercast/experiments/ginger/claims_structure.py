"""Decides the structural statements of the source, E1 to E14, from the runs."""

from __future__ import annotations

from ordercast.experiments.ginger.setting import PROCESSES
from ordercast.experiments.ginger.sources import SHORT
from ordercast.experiments.kit.claims import all_of
from ordercast.experiments.kit.results import Results
from ordercast.experiments.kit.study import Row, SourceClaim

STATEMENTS = {
    "E1": "Every neighbour won or lost causes a view update at all children and clients concerned, and in the end "
    "every view is that of the tree.",
    "E2": "b4 sees b0 as ancestor (2 hops), b5 as sibling (2), b2 and b3 as uncles (3), and neither b6 nor b7; b7 sees "
    "b0, b1 and b2.",
    "E3": "A dead broker disappears from every view that held it.",
    "E4": "Free connections are 3 minus the neighbours after each change; b7 with a parent and one client has 1, after "
    "losing its parent 2.",
    "E5": "S2 elects b2; the values of the candidates b1, b2, b3 are 1, 2, 2.",
    "E6": "b3 dies: b7 asks b0 first, and b0, with one connection free, accepts it.",
    "E7": "S1: the second to ask b0 is refused for its degree; in hop order, b5 being second, its requests go to b0, "
    "to b4 (refused: topic) and to b2 (accepted).",
    "E8": "A broker that was refused always ends in a place.",
    "E9": "No publication is lost or doubled in S0 to S5.",
    "E10": "Whoever missed publications receives exactly these, in order: a child from its new parent, a parent from "
    "its new child.",
    "E11": "Total publications that a crash interrupted complete.",
    "E12": "The order guarantees hold, between two totals of a key every member delivers the same set.",
    "E13": "What arrives during a repair is not delivered before missed publications that it depends on.",
    "E14": "S3: c0, whose edge broker died, ends at another one and loses nothing.",
}
_INSTRUCTIVE = {"E2": "S0", "E3": "S5", "E4": "S5", "E7": "S1", "E8": "S4", "E10": "S1", "E11": "S4", "E13": "S4"}
"""Scenario whose first run is quoted."""


_OF_THE_TREE = {"E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E14"}
"""Statements about who is whose neighbour. With constant latencies that is the same under many a seed."""


def structural_claims(results: Results) -> list[SourceClaim]:
    simulated = [row for row in results.rows if row["runs"] != PROCESSES]
    return [_claim(id_, statement, simulated) for id_, statement in STATEMENTS.items()]


def _claim(id_: str, statement: str, rows: list[Row]) -> SourceClaim:
    telling = [row for row in rows if row.get(id_) is not None]
    holding = [row for row in telling if row[id_] is True]
    return SourceClaim(
        id=id_,
        source=SHORT,
        statement=statement,
        measured=_measured(id_, telling, len(holding)),
        holds=all_of(bool(row[id_]) for row in telling),
    )


def _measured(id_: str, telling: list[Row], holding: int) -> str:
    if not telling:
        return "no run had anything to say"
    against = [row for row in telling if row[id_] is not True]
    wanted = _INSTRUCTIVE.get(id_)
    liked = [row for row in telling if row["scenario"] == wanted] or telling
    quoted = against[:2] or (_one_per_view_order(liked) if id_ == "E7" else sorted(liked, key=_order_of)[:1])
    told = "; ".join(f"{row['scenario']}{_order(row)}, seed {row['seed']}: {row[f'{id_}_seen']}" for row in quoted)
    return f"in {holding} of {len(telling)} runs{_alike(id_, telling)}. {told}"


def _alike(id_: str, telling: list[Row]) -> str:
    """How many of the runs are different ones for a statement about the tree."""
    different = len({(row["scenario"], row["view_order"], row[f"{id_}_seen"]) for row in telling})
    if id_ not in _OF_THE_TREE or different == len(telling):
        return ""
    return ", all alike in this" if different == 1 else f", {different} of which differ in this"


def _one_per_view_order(rows: list[Row]) -> list[Row]:
    by_order: dict[object, Row] = {}
    for row in sorted(rows, key=_order_of):
        by_order.setdefault(row["view_order"], row)
    return list(by_order.values())


def _order_of(row: Row) -> tuple[str, str, int]:
    return str(row["view_order"]), str(row["scenario"]), int(row["seed"] or 0)


def _order(row: Row) -> str:
    return " in hop order" if row["view_order"] == "hop-order" else ""
