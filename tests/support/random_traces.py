"""Small random executions, good and bad, as rows of a trace: the raw material on which the judge is judged."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.store import Manifest

Row = dict[str, Any]
TOPICS = ("red", "blue")
FILTERS = ("*", ">", "red.>")
KEYS = ("k", "l")
GUARANTEES = ("eventual", "fifo", "causal", "total", "optimistic-causal", "atomic")


@dataclass
class Shape:
    """What kind of execution to draw; every field is drawn from the seed first."""

    nodes: list[str]
    membership: str
    """groups, rows, both, nobody (left to the judge) or dst."""
    clock: str
    guarantee: str
    """One for all, own (each message its own) or none (the judge's default)."""
    keyed: bool
    disorder: float
    loss: float
    crashes: bool
    noise: float
    steps: int
    scope: str
    drain: bool
    departures: float
    """How often a node takes leave, closes with the run or loses its session."""
    pending: float
    """How often a subscription or its end is first only asked for."""
    past: float
    """How often a subscription comes with the past of its topic, or a member takes back that it did."""


@dataclass
class Execution:
    """Rows so far, and the state of the world that produced them."""

    shape: Shape
    rng: random.Random
    rows: list[Row] = field(default_factory=list)
    next_seq: dict[str, int] = field(default_factory=dict)
    inbox: dict[str, list[str]] = field(default_factory=dict)
    topics_of: dict[str, set[str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    published: list[Row] = field(default_factory=list)

    def log(self, node: str, kind: str, **more: Any) -> Row:
        seq = self.next_seq.get(node, 0)
        self.next_seq[node] = seq + 1
        row = {"run": "r", "node": node, "seq": seq, "kind": kind, "time_ns": len(self.rows) // 2, **more}
        self.rows.append(row)
        return row


def draw(seed: int) -> tuple[list[Row], Manifest | None]:
    """The execution of `seed`: its rows in the order they happened, and its manifest (None for a foreign trace)."""
    rng = random.Random(seed)
    nodes = [f"n{i}" for i in range(rng.randint(2, 5))]
    shape = Shape(
        nodes=nodes,
        membership=rng.choice(["groups", "groups", "rows", "both", "nobody", "dst", "dst"]),
        clock=rng.choice(["local", "global"]),
        guarantee=rng.choice(["own", "own", "none", "total", "total", *GUARANTEES]),
        keyed=rng.random() < 0.5,
        disorder=rng.choice([0.0, 0.1, 0.5]),
        loss=rng.choice([0.0, 0.0, 0.1, 0.3]),
        crashes=rng.random() < 0.3,
        noise=rng.choice([0.0, 0.0, 0.05]),
        steps=rng.randint(6, 40) if rng.random() < 0.98 else rng.randint(60, 90),
        scope=rng.choice(["topic", "global"]),
        drain=rng.random() < 0.7,
        departures=rng.choice([0.0, 0.0, 0.0, 0.05, 0.15]),
        pending=rng.choice([0.0, 0.3]),
        past=rng.choice([0.0, 0.3, 0.6]),
    )
    execution = Execution(shape, rng)
    groups = _begin(execution)
    for _ in range(shape.steps):
        _step(execution)
    if shape.drain:
        _drain(execution)
    _digest(execution)
    if shape.departures:
        for node in nodes:
            if node not in execution.down and rng.random() < 0.5:
                _depart(execution, node)
    manifest = Manifest(
        run_id="r",
        protocol="random",
        guarantee=shape.guarantee if shape.guarantee in GUARANTEES else "mixed",
        scope=shape.scope,
        nodes=nodes,
        groups=groups,
        clock=shape.clock,
        drained=rng.choice([True, True, None, False]),
        order_scope=order_scope_of(seed),
        claims=[
            *random.Random(f"claims {seed}").sample(["total-topic", "real-time"], seed % 3),
            *random.Random(f"one order {seed}").sample(["one-order"], seed % 2),
        ],
        uniform=random.Random(f"uniform {seed}").random() < 0.6,
        leavers_pass_on=random.Random(f"leavers {seed}").random() < 0.5,
    )
    return execution.rows, None if shape.membership == "nobody" and rng.random() < 0.7 else manifest


def said_of(seed: int, manifest: Manifest | None) -> tuple[dict[str, list[str]] | None, bool | None]:
    """What the user says about the execution of `seed`: its members, and whether own deliveries count; if anything."""
    rng = random.Random(f"said {seed}")
    if manifest is not None or rng.random() < 0.5:
        return None, None
    nodes = [f"n{i}" for i in range(5)]
    members = {topic: sorted(rng.sample(nodes, 3)) for topic in TOPICS} if rng.random() < 0.5 else None
    return members, rng.choice([None, True, False])


def order_scope_of(seed: int) -> str:
    """Under which order scope the execution of `seed` is judged; a foreign trace has no manifest to say so."""
    return random.Random(f"order {seed}").choice(["session", "key"])


def table_of(rows: list[Row]) -> pa.Table:
    """The rows as a table of the trace format."""
    columns = {}
    for field_ in EVENT_SCHEMA:
        values = [row.get(field_.name) for row in rows]
        if field_.name == "info":
            values = [None if value is None else list(value.items()) for value in values]
        columns[field_.name] = pa.array(values, type=field_.type)
    return pa.table(columns)


def _begin(execution: Execution) -> dict[str, list[str]] | None:
    shape, rng = execution.shape, execution.rng
    execution.inbox = {node: [] for node in shape.nodes}
    execution.topics_of = {node: set() for node in shape.nodes}
    if shape.membership in ("groups", "both", "nobody"):
        for node in shape.nodes:
            execution.topics_of[node] = {topic for topic in TOPICS if rng.random() < 0.8}
    if shape.membership not in ("groups", "both"):
        return None
    if shape.membership == "both":
        for node in shape.nodes:
            if rng.random() < 0.2:
                execution.log(node, "join")
    return {topic: [n for n in shape.nodes if topic in execution.topics_of[n]] for topic in TOPICS}


def _step(execution: Execution) -> None:
    shape, rng = execution.shape, execution.rng
    node = rng.choice(shape.nodes)
    if shape.crashes and rng.random() < 0.08:
        _crash_or_recover(execution, node)
    if node in execution.down:
        return
    if rng.random() < shape.noise:
        _misbehave(execution, node)
    if rng.random() < shape.departures * 0.3:
        _depart(execution, node)
        return
    if shape.membership in ("rows", "both") and rng.random() < 0.25:
        _change_membership(execution, node)
    elif rng.random() < 0.3:
        _publish(execution, node)
    else:
        _deliver(execution, node)


def _publish(execution: Execution, node: str) -> None:
    shape, rng = execution.shape, execution.rng
    more: Row = {"msg": f"m{len(execution.published)}"}
    if shape.membership == "dst":
        more["dst"] = rng.sample(shape.nodes, rng.randint(1, len(shape.nodes)))
        targets = more["dst"]
    else:
        more["topic"] = rng.choice(TOPICS)
        targets = [n for n in shape.nodes if more["topic"] in execution.topics_of[n]]
    if shape.guarantee != "none":
        more["guarantee"] = rng.choice([*GUARANTEES, "total"]) if shape.guarantee == "own" else shape.guarantee
    if shape.keyed:
        more["keys"] = rng.choice([None, [], ["k"], ["l"], ["k", "l"], ["k", "k"]])
    row = execution.log(node, "publish", **more)
    execution.published.append(row)
    for target in targets:
        if rng.random() >= shape.loss and target not in execution.down:
            execution.inbox[target].append(row["msg"])


def _deliver(execution: Execution, node: str) -> None:
    waiting, rng = execution.inbox[node], execution.rng
    if waiting:
        index = rng.randrange(len(waiting)) if rng.random() < execution.shape.disorder else 0
        msg = waiting.pop(index)
        if rng.random() < 0.2:
            execution.log(node, "receive", msg=msg)
        execution.log(node, "deliver", msg=msg)


def _misbehave(execution: Execution, node: str) -> None:
    rng = execution.rng
    known = [row["msg"] for row in execution.published]
    what = rng.choice(["invent", "repeat", "early", "again", "handle", "handle", "misdate", "misdate"])
    if what == "invent":
        execution.log(node, "deliver", msg="phantom")
    elif what == "early":
        execution.log(node, "deliver", msg=f"m{len(execution.published)}")
    elif known and what == "repeat":
        execution.log(node, "deliver", msg=rng.choice(known))
    elif what == "misdate" and execution.inbox[node]:
        execution.log(node, "deliver", msg=execution.inbox[node].pop(0))["time_ns"] = rng.randint(
            0, len(execution.rows) // 4
        )
    elif known and what == "again":
        execution.log(node, "publish", msg=rng.choice(known), topic="red")
    elif known:
        execution.log(node, rng.choice(["send", "receive"]), msg=rng.choice(known))


def _past(execution: Execution) -> dict[str, str]:
    rng = execution.rng
    return {"from": rng.choice(["everything", "membership"])} if rng.random() < execution.shape.past else {}


def _change_membership(execution: Execution, node: str) -> None:
    rng, mine = execution.rng, execution.topics_of[node]
    what = rng.random()
    topics = list(TOPICS) if rng.random() < 0.2 else [rng.choice(TOPICS)]  # As a filter does: several at once.
    _change_filter(execution, node)
    info = {"pending": "true"} if rng.random() < execution.shape.pending else None
    if what < 0.65:
        mine.update(topics)
        for topic in topics:
            told = {**(info or {}), **_past(execution), **_led_by(execution, topic), **_keeps_order(execution)}
            execution.log(node, "subscribe", topic=topic, info=told or None)
    elif what < 0.9:
        mine.difference_update(topics)
        for topic in topics:
            execution.log(node, "unsubscribe", topic=topic, info=info)
    elif what < 0.95:
        mine.clear()
        execution.log(node, "leave")
    else:
        execution.log(node, "join")


def _change_filter(execution: Execution, node: str) -> None:
    """Drawn beside the other draws, which it leaves as they were."""
    rng = random.Random(f"filter {execution.shape} {len(execution.rows)}")
    if rng.random() < execution.shape.past:
        filter_ = rng.choice(FILTERS)
        info = {"pending": "true"} if rng.random() < execution.shape.pending else {}
        info |= {"filter": filter_} if rng.random() < 0.7 else {}
        execution.log(node, rng.choice(["subscribe", "subscribe", "unsubscribe"]), topic=filter_, info=info or None)


def _led_by(execution: Execution, topic: str) -> dict[str, str]:
    """Drawn beside the other draws, which it leaves as they were."""
    rng = random.Random(f"led by {execution.shape} {len(execution.rows)}")
    led = rng.random() < execution.shape.past / 2
    return {"from": "filter", "filter": rng.choice([*FILTERS, *sorted({*TOPICS} - {topic})])} if led else {}


def _keeps_order(execution: Execution) -> dict[str, str]:
    """Drawn beside the other draws, which it leaves as they were."""
    said = random.Random(f"ordered {execution.shape} {len(execution.rows)}").choice(["", "", "yes", "no"])
    return {"ordered": said} if said else {}


def _crash_or_recover(execution: Execution, node: str) -> None:
    if node not in execution.down:
        execution.down.add(node)
        execution.log(node, "crash")
        return
    execution.down.discard(node)
    state = execution.rng.choice(["kept", "lost", None])
    execution.log(node, "recover", info=None if state is None else {"state": state})
    if state == "lost":
        execution.inbox[node] = []
        if execution.shape.membership == "rows":
            execution.topics_of[node] = set()


def _depart(execution: Execution, node: str) -> None:
    """The node closes with the run, takes leave, or its session is given up; it may be back later, without state."""
    how = execution.rng.choice(["close", "close", "leave", "lost"])
    info = {"close": {"end": "true"}, "leave": None, "lost": {"lost": "absent for too long"}}[how]
    execution.log(node, "leave", info=info)
    execution.down.add(node)


def _drain(execution: Execution) -> None:
    for node in execution.shape.nodes:
        while execution.inbox[node] and node not in execution.down:
            _deliver(execution, node)


def _digest(execution: Execution) -> None:
    rng = execution.rng
    if rng.random() < 0.2:
        for node in execution.shape.nodes:
            if node not in execution.down and rng.random() < 0.8:
                topic = rng.choice([None, "red"])
                execution.log(node, "repair_end", topic=topic, info={"digest": rng.choice("aab")})
