"""Values of an earlier, independent prototype of the corrected protocol: columns to compare with, no claims.

Its latencies are those of the setting here, its load 100 keys and 400 operations per client, its seeds three.
"""

from __future__ import annotations

PROTOTYPE_MS: dict[str, tuple[float, float, float]] = {
    "S0": (316, 316, 692), "S1": (306, 308, 684), "S2": (374, 377, 775), "S3": (302, 305, 663),
    "S4": (452, 447, 896), "S5": (367, 361, 752),
}  # fmt: skip
"""Scenario to the mean latency of eventual, causal and total publications."""
PROTOTYPE_KEYS_MS: dict[int, tuple[float, float, float]] = {
    1: (20_000, 20_000, 20_000), 10: (561, 539, 787), 100: (316, 316, 692), 1000: (293, 293, 692)
}  # fmt: skip
PROTOTYPE_ROUNDS_MS = {(1, 1): (150, 960), (2, 2): (750, 750), (4, 6): (1400, 2750), (9, 9): (2600, 2600)}
"""From how many to how many rounds, to the shortest and the longest repair until synchronised."""
PROTOTYPE_REPAIRS = (
    "Prototype, until synchronised: 1 round 150 to 960 ms by distance, 2 rounds 750, 4 to 6 rounds 1400 to 2750, "
    "9 rounds 2600; an election alone 480 to 960"
)
SOURCE_REPAIR_MS = 91
"""The one time of a repair that the source prints, in its Annex VII."""
