"""Results of an exploration, as values."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Literal

import msgspec

from ordercast.explore.promises.properties import Violation
from ordercast.explore.stage.schedule import SteppedRun


class Size(msgspec.Struct):
    """All configurations with the same number of messages."""

    messages: int
    configurations: int
    """How many there are in the scope."""
    explored: int = 0
    """How many of them were explored to their end."""
    states: int = 0
    transitions: int = 0
    outcomes: int = 0
    """Distinct tuples of delivery orders at rest, summed over the configurations; ascending: distinct closures."""
    longest: int = 0
    """Steps of the longest of the shortest schedules: how deep it goes."""


class Counterexample(msgspec.Struct, frozen=True):
    """The smallest way to break a promise: fewest messages, then fewest steps."""

    configuration: str
    violation: Violation
    schedule: SteppedRun
    story: list[str]
    """One line a step."""
    orders: list[str]
    """What each node delivered, by node."""


class Memory:
    """The memory that an exploration takes: the growth of the process, with all tables, whatever they are made of."""

    def __init__(self) -> None:
        self._before = _resident()

    def per_state(self, states: int) -> float:
        """Bytes by state; 0 where the states are too few for the growth to be theirs."""
        return max(0, _resident() - self._before) / states if states >= _ENOUGH else 0.0


_ENOUGH = 20_000
_TO_BYTES = 1 if sys.platform == "darwin" else 1024


def _resident() -> int:
    """The most memory that this process has ever had; where the system can tell, without what started it had."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _TO_BYTES


class Exploration(msgspec.Struct, kw_only=True):
    """The result of `explore`."""

    protocol: str
    nodes: int
    sizes: list[Size]
    decided: bool
    """Whether nothing was left out for want of time or space."""
    counterexample: Counterexample | None = None
    violating: list[str] = []
    """All configurations that can go wrong and the check they break, if it was told to go on after the first."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    machine_steps: int = 0
    """Inputs that real machines handled; all other transitions repeat one of these."""
    largest: int = 0
    """States of the largest configuration."""
    bytes_per_state: float = 0.0
    """How much the process grew, by state of the largest configuration; 0: too few states to tell."""

    @property
    def verdict(self) -> Literal["holds", "violated", "undecided"]:
        if self.counterexample is not None:
            return "violated"
        return "holds" if self.decided else "undecided"

    @property
    def scope(self) -> int:
        """All configurations that there are."""
        return sum(size.configurations for size in self.sizes)

    @property
    def configurations(self) -> int:
        """Configurations explored to their end."""
        return sum(size.explored for size in self.sizes)

    @property
    def states(self) -> int:
        return sum(size.states for size in self.sizes)

    @property
    def transitions(self) -> int:
        return sum(size.transitions for size in self.sizes)

    @property
    def outcomes(self) -> int:
        return sum(size.outcomes for size in self.sizes)

    @property
    def transitions_per_second(self) -> float:
        """Of one core's time, so that other programs do not count."""
        return self.transitions / self.cpu_seconds if self.cpu_seconds else 0.0

    def estimated_states(self) -> int:
        """How many states the whole scope has, if the rest is like what was explored: a guess, on the low side."""
        total = per_configuration = 0.0
        for size in self.sizes:
            begun = size.explored + (size.explored < size.configurations and size.states > 0)
            if size.states:
                per_configuration = max(per_configuration, size.states / begun)
            total += size.states if size.explored == size.configurations else per_configuration * size.configurations
        return round(total)


class Replay(msgspec.Struct, frozen=True):
    """The outcome of a schedule that was performed again."""

    violation: Violation | None
    recorded: Violation | None
    """What the schedule says that it shows."""
    story: list[str]
    orders: list[str]
