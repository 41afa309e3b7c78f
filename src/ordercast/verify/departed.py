"""Finds messages that a receiver had let be overtaken before it left or died: leaving does not excuse those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordercast.verify.kernels import departed

if TYPE_CHECKING:
    from ordercast.verify.columns import Columns
    from ordercast.verify.kernels.jit import Ints, Offsets

_AT_ONCE = 62


def overtaken(columns: Columns, receiver: Ints, missed: Offsets) -> np.ndarray[Any, Any]:
    """Flags on entries of `Arrays.missed`: while it owed the message, the receiver delivered one that comes after it.

    After it in the order that both messages' guarantees keep: in causal order, or in their publisher's.
    """
    arrays = columns.arrays
    due = arrays.due[missed]
    stays, stay_of = np.unique(np.stack((receiver, due), axis=1), axis=0, return_inverse=True)
    found = np.zeros(missed.size, bool)
    for first in range(0, len(stays), _AT_ONCE):
        chunk = stays[first : first + _AT_ONCE]
        mine = np.flatnonzero((stay_of >= first) & (stay_of < first + len(chunk)))
        bit = stay_of[mine] - first
        begins = arrays.off[chunk[:, 0]]
        ends = np.minimum(arrays.off[chunk[:, 0] + 1], begins + chunk[:, 1])
        known = columns.past.passed_on(departed.delivered_in(begins, ends, arrays.ev, arrays.held("causal")))
        message = arrays.missed[missed[mine]]
        causal = (known[message] >> bit) & arrays.held("causal")[message]
        in_line = departed.passed_in_line(
            begins, ends, arrays.ev, arrays.held("fifo"), arrays.line_off, arrays.lines,
            int(arrays.lines.max(initial=-1)) + 1, bit, message,
        )  # fmt: skip
        found[mine] = (causal | in_line) != 0
    return found
