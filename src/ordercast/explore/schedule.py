"""A schedule as a file: a configuration and the exact order of its steps, to replay and to keep with a bug report."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.explore.configurations import Configuration, parse_destinations, parse_node
from ordercast.explore.properties import Violation, name

_ARRIVES = re.compile(r"(?P<peer>\S+) -> (?P<node>\S+?)( #(?P<position>[1-9][0-9]*))?")
_PUBLISHES = re.compile(r"(?P<node>\S+) publishes")
_RUNS_OUT = re.compile(r"(?P<node>\S+) timer (?P<timer>.+)")


class Step(msgspec.Struct, frozen=True):
    """Something happens at `node`: the input at a position of the channel from `peer`, a publication, or a timer."""

    node: str
    peer: str = ""
    timer: str = ""
    position: int = 1

    def __str__(self) -> str:
        if self.timer:
            return f"{self.node} timer {self.timer}"
        if not self.peer:
            return f"{self.node} publishes"
        return f"{self.peer} -> {self.node}" + (f" #{self.position}" if self.position > 1 else "")


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run, step by step. Every field is a key of the file."""

    format: int = 1
    protocol: str
    nodes: int
    overlay: str = "clique"
    options: dict[str, Any] = {}
    destinations: list[list[str]] = []
    """Of m1, m2, ...; the client of m1 is c1, and so on."""
    publishers: list[str] = []
    """Of m1, m2, ..., for protocols whose messages go to everyone."""
    steps: list[str]
    violation: Violation | None = None
    """What the last step breaks."""

    def configuration(self) -> Configuration:
        if bool(self.destinations) == bool(self.publishers):
            raise UsageError("a schedule has either destinations or publishers")
        if self.publishers:
            publishers = tuple(parse_node(publisher, self.nodes, "publishers") for publisher in self.publishers)
            return Configuration(self.nodes, (tuple(range(self.nodes)),) * len(publishers), publishers)
        text = ";".join(",".join(members) for members in self.destinations)
        return Configuration(self.nodes, parse_destinations(text, self.nodes))


def parse_step(text: str) -> Step:
    """The step that `str(step)` wrote."""
    if match := _ARRIVES.fullmatch(text):
        return Step(match["node"], match["peer"], position=int(match["position"] or 1))
    if match := _PUBLISHES.fullmatch(text):
        return Step(match["node"])
    if match := _RUNS_OUT.fullmatch(text):
        return Step(match["node"], timer=match["timer"])
    raise UsageError(f"{text!r} is not a step; steps look like 'n0 -> n2', 'n0 publishes' or 'n0 timer ack'")


def read_schedule(path: Path) -> Schedule:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        schedule = msgspec.convert(raw, Schedule)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None
    if schedule.format != 1:
        raise UsageError(f"{path}: format: {schedule.format} is not 1, the only one known")
    for i, step in enumerate(schedule.steps):
        try:
            parse_step(step)
        except UsageError as error:
            raise UsageError(f"{path}: steps[{i}]: {error}") from None
    return schedule


def write_schedule(path: Path, schedule: Schedule, story: list[str]) -> None:
    """The file, each step with what it does as a comment."""
    lines = [
        f"format = {schedule.format}",
        f"protocol = {_toml(schedule.protocol)}",
        f"nodes = {schedule.nodes}",
        f"overlay = {_toml(schedule.overlay)}",
    ]
    if schedule.publishers:
        lines.append(f"publishers = {_toml(schedule.publishers)}")
    else:
        lines.append("destinations = [")
        lines += [f"  {_toml(members)},  # {name(i)}" for i, members in enumerate(schedule.destinations)]
        lines.append("]")
    lines.append("steps = [")
    lines += [f"  {_toml(step)},  # {told}" for step, told in zip(schedule.steps, story, strict=True)]
    lines.append("]")
    if schedule.options:
        lines += ["", "[options]", *(f"{key} = {_toml(value)}" for key, value in schedule.options.items())]
    if schedule.violation is not None:
        lines += ["", "[violation]", f"check = {_toml(schedule.violation.check)}"]
        lines.append(f"detail = {_toml(schedule.violation.detail)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: Any) -> str:
    """Strings, numbers, booleans and lists of them read the same in JSON and in TOML."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
