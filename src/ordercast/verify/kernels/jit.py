"""Compiles kernels on first use, cached beside the source, without holding the interpreter lock."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Offsets: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.uint8]

NEVER = 1 << 30
"""Later than every position: that of a message which was owed and never delivered."""

kernel = njit(cache=True, nogil=True)
