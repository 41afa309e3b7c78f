"""Deliveries at nodes that take messages as they come: said by the trace, and left out of the optimistic order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ordercast.trace.schema import INFO_ORDERED, ORDERED_NO

if TYPE_CHECKING:
    from ordercast.verify.duties import Duties
    from ordercast.verify.kernels.jit import Flags
    from ordercast.verify.logs import Lives, Logs
    from ordercast.verify.rows import Rows


def unordered_deliveries(rows: Rows, lives: Lives, logs: Logs, duties: Duties) -> Flags:
    """Of each entry of the logs, whether it is one; empty if no row of the trace says so."""
    entries, values = rows.info(INFO_ORDERED)
    begins = {int(entry) for entry, value in zip(entries, values, strict=True) if value == ORDERED_NO}
    if not begins:
        return np.empty(0, np.uint8)
    flags = np.zeros(logs.ev.size, np.uint8)
    code = {name: number for number, name in enumerate(duties.topics)}
    for (receiver, topic), changes in _by_topic(rows, lives, set(entries.tolist())).items():
        end = int(logs.off[receiver + 1])
        places = [*(int(np.searchsorted(logs.entry, entry)) for entry in changes), end]
        for entry, first, last in zip(changes, places, places[1:], strict=False):
            if entry in begins:
                part = logs.ev[first:last]
                flags[first:last] |= (part >= 0) & (duties.topic[np.maximum(part, 0)] == code[topic])
    return flags


def _by_topic(rows: Rows, lives: Lives, telling: set[int]) -> dict[tuple[int, str], list[int]]:
    """The subscribe rows of every receiver and topic that say whether an order is kept, in its own order."""
    found: dict[tuple[int, str], list[int]] = {}
    changes = rows.of_kind("subscribe")
    receivers = np.searchsorted(lives.entry_off, changes, side="right") - 1
    for entry, receiver, topic in zip(changes, receivers, rows.column("topic", changes), strict=True):
        if int(entry) in telling:
            found.setdefault((int(receiver), topic), []).append(int(entry))
    return found
