"""A schedule as a file: a configuration and the exact order of its steps, to replay and to keep with a bug report."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.explore.promises.properties import Violation, name
from ordercast.explore.scope.configurations import Configuration, parse_destinations, parse_node
from ordercast.explore.scope.publications import configuration_of, parse_publication
from ordercast.protocols import OVERLAYS

_ARRIVES = re.compile(r"(?P<peer>\S+) -> (?P<node>\S+?)( #(?P<position>[1-9][0-9]{0,8}))?(?P<lost> is lost)?")
_PUBLISHES = re.compile(r"(?P<node>\S+) publishes")
_DOUBTS = re.compile(r"(?P<node>\S+) (?P<verb>suspects|trusts) (?P<about>\S+)")
_MOST_NODES = 1000
"""Far more than anybody explores; what a file says must not decide how much memory is taken."""
_SETTLES = "everyone settles"
_RUNS_OUT = re.compile(r"(?P<node>\S+) timer (?P<timer>.+)")


class NodeStep(msgspec.Struct, frozen=True):
    """Something happens at `node`: the input at a position of the channel from `peer`, a publication, or a timer.

    Where things go wrong also: that input is lost, or the node changes its mind about others. No node at all: nothing
    goes wrong any more, and everything that still can happen does.
    """

    node: str
    peer: str = ""
    timer: str = ""
    position: int = 1
    lost: bool = False
    about: tuple[str, ...] = ()
    """Whom the node suspects, or trusts again."""
    suspects: bool = False

    @property
    def goes_wrong(self) -> bool:
        return not self.node or self.lost or bool(self.about)

    def __str__(self) -> str:
        if not self.node:
            return _SETTLES
        if self.about:
            return f"{self.node} {'suspects' if self.suspects else 'trusts'} {','.join(self.about)}"
        if self.timer:
            return f"{self.node} timer {self.timer}"
        if not self.peer:
            return f"{self.node} publishes"
        position = f" #{self.position}" if self.position > 1 else ""
        return f"{self.peer} -> {self.node}{position}{' is lost' if self.lost else ''}"


class SteppedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run, step by step. Every field is a key of the file."""

    format: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    protocol: str
    nodes: Annotated[int, msgspec.Meta(ge=1, le=_MOST_NODES)]
    overlay: str = "clique"
    options: dict[str, Any] = {}
    destinations: list[list[str]] = []
    """Of m1, m2, ...; the client of m1 is c1, and so on."""
    publishers: list[str] = []
    """Of m1, m2, ..., for protocols whose messages go to everyone."""
    edges: list[str] = []
    """Of the overlay, `n0-n1` and so on, where it has no name."""
    groups: dict[str, list[str]] = {}
    """Members by name."""
    publications: list[str] = []
    """Of m1, m2, ..., to groups: `n0>a`, or `n0>b after m1`."""
    without: list[str] = []
    """Types of packets that do not arrive before everyone settles."""
    clients: list[str] = []
    """Of a tree of brokers: `b0:a`, or `b1:a+b.>`; c0, c1, ... in this order."""
    crash: str = ""
    """The broker that may crash, `b1` or `b1 returns`."""
    cut: str = ""
    """The client whose connection may break."""
    joins: list[int] = []
    """Of an overlay that changes: processes that join at any moment."""
    cuts: int = 0
    """Of such an overlay: how often a connection may break."""
    losses: int = 0
    """Of such an overlay: how often an acknowledgement may be lost."""
    early: int = 0
    """How often a timer may run out early."""
    timer: str = ""
    """The word in the names of those timers."""
    steps: list[str]
    violation: Violation | None = None
    """What the last step breaks."""

    def configuration(self) -> Configuration:
        if sum(map(bool, (self.destinations, self.publishers, self.publications))) != 1:
            raise UsageError("a schedule has either destinations or publishers, or publications to groups")
        if self.publications:
            given = [parse_publication(text, self.nodes) for text in self.publications]
            return configuration_of(self.nodes, self.members(), given)
        if self.publishers:
            publishers = tuple(parse_node(publisher, self.nodes, "publishers") for publisher in self.publishers)
            return Configuration(self.nodes, (tuple(range(self.nodes)),) * len(publishers), publishers)
        text = ";".join(",".join(members) for members in self.destinations)
        return Configuration(self.nodes, parse_destinations(text, self.nodes))

    def members(self) -> dict[str, tuple[int, ...]]:
        """The groups, by rank."""
        return {
            name: tuple(sorted({parse_node(member, self.nodes, f"groups.{name}") for member in members}))
            for name, members in self.groups.items()
        }


def parse_step(text: str) -> NodeStep:
    """The step that `str(step)` wrote."""
    if match := _ARRIVES.fullmatch(text):
        return NodeStep(match["node"], match["peer"], position=int(match["position"] or 1), lost=bool(match["lost"]))
    if text == _SETTLES:
        return NodeStep("")
    if match := _DOUBTS.fullmatch(text):
        return NodeStep(match["node"], about=tuple(match["about"].split(",")), suspects=match["verb"] == "suspects")
    if match := _PUBLISHES.fullmatch(text):
        return NodeStep(match["node"])
    if match := _RUNS_OUT.fullmatch(text):
        return NodeStep(match["node"], timer=match["timer"])
    raise UsageError(f"{text!r} is not a step; steps look like 'n0 -> n2', 'n0 publishes' or 'n0 timer ack'")


def read_schedule(path: Path) -> SteppedRun:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        schedule = msgspec.convert(raw, SteppedRun)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None
    except NOT_DECODABLE as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    schedule = msgspec.structs.replace(schedule, protocol=_seen_from(schedule.protocol, Path(), path.parent))
    if schedule.format != 1:
        raise UsageError(f"{path}: format: {schedule.format} is not 1, the only one known")
    in_words = schedule.clients or schedule.protocol in OVERLAYS  # Of machines with connections: labels of their world.
    for i, step in enumerate(() if in_words else schedule.steps):
        try:
            parse_step(step)
        except UsageError as error:
            raise UsageError(f"{path}: steps[{i}]: {error}") from None
    return schedule


def write_schedule(path: Path, schedule: SteppedRun, story: list[str]) -> None:
    """The file, each step with what it does as a comment."""
    lines = [
        f"format = {schedule.format}",
        f"protocol = {_toml(_seen_from(schedule.protocol, path.parent, Path()))}",
        f"nodes = {schedule.nodes}",
        f"edges = {_toml(schedule.edges)}" if schedule.edges else f"overlay = {_toml(schedule.overlay)}",
    ]
    plain = ("without", "clients", "crash", "cut", "early", "timer")
    lines += [f"{key} = {_toml(value)}" for key in plain if (value := getattr(schedule, key))]
    if schedule.publications:
        lines.append("publications = [")
        lines += [f"  {_toml(text)},  # {name(i)}" for i, text in enumerate(schedule.publications)]
        lines.append("]")
    elif schedule.publishers:
        lines.append(f"publishers = {_toml(schedule.publishers)}")
    else:
        lines.append("destinations = [")
        lines += [f"  {_toml(members)},  # {name(i)}" for i, members in enumerate(schedule.destinations)]
        lines.append("]")
    lines.append("steps = [")
    lines += [f"  {_toml(step)},  # {told}" for step, told in zip(schedule.steps, story, strict=True)]
    lines.append("]")
    if schedule.groups:
        lines += ["", "[groups]", *(f"{_toml(key)} = {_toml(value)}" for key, value in schedule.groups.items())]
    if schedule.options:
        lines += ["", "[options]", *(f"{key} = {_toml(value)}" for key, value in schedule.options.items())]
    if schedule.violation is not None:
        lines += ["", "[violation]", f"check = {_toml(schedule.violation.check)}"]
        lines.append(f"detail = {_toml(schedule.violation.detail)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _seen_from(protocol: str, here: Path, there: Path) -> str:
    """A protocol's file, named as seen from `there`, as seen from `here`: schedules name it from their own folder."""
    where, py, name = protocol.partition(".py")
    if not py or (name and not name.startswith(":")):
        return protocol
    file = there / f"{where}.py"
    # With links followed: `..` leads out of where a linked folder is, not out of where it is named.
    return Path(os.path.relpath(file.parent.resolve() / file.name, here.resolve())).as_posix() + name


def _toml(value: Any) -> str:
    """Strings, numbers, booleans and lists of them read the same in JSON and in TOML."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
