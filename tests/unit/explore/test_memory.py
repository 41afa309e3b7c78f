"""What an exploration says of its memory is what the process took, with everything that it keeps."""

from __future__ import annotations

import subprocess
import sys

_KEEPS = """
from ordercast.explore.result import Memory

memory = Memory()
kept = [{number: bytes(range(200)) * 5} for number in range(STATES)]
print(memory.per_state(len(kept)))
"""


def _per_state(states: int) -> float:
    """In a process of its own: the memory of this one has been larger before."""
    code = _KEEPS.replace("STATES", str(states))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


def test_bytes_per_state_count_whatever_is_kept_for_a_state() -> None:
    """A thousand bytes, the dictionary around them, and the list: more than what any one object says of its size."""
    each = sys.getsizeof(bytes(1000)) + sys.getsizeof({1: b""})
    assert each < _per_state(100_000) < 1.3 * each


def test_a_few_states_say_nothing_about_memory() -> None:
    assert _per_state(100) == 0
