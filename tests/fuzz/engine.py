"""Wounded inputs for one decoder after another, and what counts as a fault.

A decoder returns a value or raises its one error. It takes no longer, and no more memory, than the length of its input
allows. Whatever else happens is a `FaultError`, which knows the shortest input that still shows it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random

from tests.fuzz.mutator import wounded

CORPUS = Path(__file__).parent / "corpus"
_MOST_S, _MOST_S_A_BYTE = 0.5, 2e-5
_MOST_KB, _MOST_KB_A_BYTE = 1 << 16, 2
_SHRINKING = 2000
"""So many tries are worth a shorter input."""


class Target:
    """One decoder: valid inputs to begin with, how to call it, and the error that it may raise."""

    def __init__(
        self, name: str, seeds: Callable[[], Sequence[bytes]], decode: Callable[[bytes], object],
        *errors: type[Exception], text: bool = False, cases: int = 2000,
    ) -> None:  # fmt: skip
        self.name = name
        self.decode = decode
        self.errors = errors
        self.text = text
        self.cases = cases
        """How many inputs of each seed the suite tries."""
        self._seeds = seeds

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        return list(self._seeds())

    def inputs(self, seed: int) -> Iterator[bytes]:
        """Without end."""
        chance = Random(f"{self.name}/{seed}")
        while True:
            yield wounded(chance.choice(self.seeds), self.seeds, chance, text=self.text)

    def fault(self, data: bytes) -> str:
        """What the decoder did that it must not do with this input; empty: nothing."""
        what = self._fault(data)
        return self._fault(data) if what.startswith("takes ") else what  # The first call of all may load modules.

    def _fault(self, data: bytes) -> str:
        began, peak = time.thread_time(), _peak_kb()
        try:
            self.decode(data)
        except self.errors:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if time.thread_time() - began > _MOST_S + _MOST_S_A_BYTE * len(data):
            return f"takes {time.thread_time() - began:.2f} s of CPU for {len(data)} bytes"
        if _peak_kb() - peak > _MOST_KB + _MOST_KB_A_BYTE * len(data):
            return f"takes {_peak_kb() - peak} KB for {len(data)} bytes"
        return ""


class FaultError(AssertionError):
    """A decoder let something out."""

    def __init__(self, target: Target, data: bytes, what: str) -> None:
        self.target = target
        self.data = shrunk(target, data, what)
        self.what = what
        super().__init__(f"{target.name}: {what}\n  again: python -m tests.fuzz {target.name} {self.data.hex() or '-'}")


def hunt(target: Target, seed: int, cases: int) -> None:
    """Try so many inputs; a FaultError if one of them is one."""
    _forget_peak()
    for _, data in zip(range(cases), target.inputs(seed), strict=False):
        what = target.fault(data)
        if what:
            raise FaultError(target, data, what)


def shrunk(target: Target, data: bytes, what: str) -> bytes:
    """A shorter input with a fault of the same kind."""
    kind, tries, size = what.partition(" ")[0], 0, max(1, len(data) // 2)
    while size and tries < _SHRINKING:
        start = 0
        while start < len(data) and tries < _SHRINKING:
            tries += 1
            shorter = data[:start] + data[start + size :]
            if target.fault(shorter).partition(" ")[0] == kind:
                data = shorter
            else:
                start += size
        size //= 2
    return data


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _forget_peak() -> None:
    """What other tests took is not this decoder's."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
