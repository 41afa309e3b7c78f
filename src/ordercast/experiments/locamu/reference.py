"""Values of an independent prototype of the corrected protocol: sizes it measured, capacities that follow from them.

511 nodes, f = 1, no failures. Sizes are by the source's count, on average over all transmissions, without limits of
bandwidth.
"""

from __future__ import annotations

from ordercast.experiments.locamu.runs import BARRIERS, CBCAST, LOCAMU

TOLERANCE = 0.1
ONE_GROUP: dict[str, dict[int, float]] = {
    LOCAMU: {1: 289, 5: 296, 20: 296, 50: 296, 100: 296, 200: 296, 511: 296},
    CBCAST: {1: 12, 5: 29, 20: 88, 50: 199, 100: 353, 200: 701, 511: 1_816},
    BARRIERS: {1: 8_176, 5: 24_528, 20: 48_034},
}
"""Protocol to publishers to bytes of metadata."""
MANY_GROUPS: dict[str, dict[int, float]] = {
    LOCAMU: {1: 283, 20: 295, 100: 297, 511: 297},
    CBCAST: {1: 31, 20: 241, 100: 691, 511: 2_861},
}
CROSSING = {"one": 80, "subtrees": 30}
"""Publishers at which CBCAST's metadata passes LoCaMu's."""
CAPACITY_PER_S = 11_700.0
"""Messages through a node with three neighbours, at 100 Mb/s for both directions."""
CAPACITY_SENDER_PER_S = 17_500.0
"""The same where only the sender pays."""
DELTA_ALL_PER_S = 17_188.0
"""All 511 nodes publishing: the sum of one over twice the eccentricity of each, in milliseconds."""
DELTA_PASSES = 345
"""Publishers at which Delta-Neighbourhood passes LoCaMu, both directions paid for."""
DELTA_RANDOM_PER_S = (33.0, 40.0)
"""One publisher anywhere."""
BUSIEST_BY_F = {
    (1, "corrected"): 712.0,
    (2, "published"): 2_150.0,
    (2, "corrected"): 4_200.0,
    (3, "published"): 4_650.0,
}
"""f and profile to the bytes that the busiest node sends for a message."""
BUSIEST_BY_DEGREE = {3: 712.0, 4: 1_798.0, 5: 3_730.0, 6: 6_476.0, 9: 18_153.0}
