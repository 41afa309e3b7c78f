"""Ends a process together with the one that started it: it watches a pipe whose other end the starter holds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

ABANDONED = 129
"""Exit code of a process whose starter is gone; a shell would say the same of one that was hung up on."""


def end_with_standard_input(heard: Callable[[], object] | None = None) -> None:
    """End this process, whatever it does, as soon as its standard input ends.

    `heard` is called, in a thread of its own, whenever something comes in.
    """
    threading.Thread(target=_watch, args=(heard,), name="parent-death", daemon=True).start()


def _watch(heard: Callable[[], object] | None) -> None:
    while os.read(0, 4096):
        if heard is not None:
            heard()
    os._exit(ABANDONED)
