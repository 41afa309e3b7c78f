"""The study of what causal order by vector clocks costs: header bytes and hold-back, against the size of the system."""

from __future__ import annotations

from ordercast.experiments.kit.study import Study
from ordercast.experiments.vector_overhead.claims import claims
from ordercast.experiments.vector_overhead.figures import figures
from ordercast.experiments.vector_overhead.runs import SCALES, measure, weigh
from ordercast.experiments.vector_overhead.sources import BSS91, CB91, PC18

STUDY = Study(
    name="vector-overhead",
    version=1,
    title="Header bytes and hold-back of vector clocks against the size of the system",
    source=PC18,
    description=(
        "Causal broadcast with vector clocks against plain flooding and FIFO order, on random overlays whose links "
        "delay exponentially and keep no order. Every node publishes at the same pace, whatever their number, and some "
        "deliveries are answered, so that messages have a causal past. Varied one at a time: the number of nodes, the "
        "rate, the length of the run. Every run is simulated, measured from its trace and judged."
    ),
    scales=SCALES,
    run=measure,
    claims=claims,
    figures=figures,
    weigh=weigh,
    words={
        "flood, fifo, vector": "protocols of Ordercast: no order; the order of each publisher; causal order by a "
        "vector clock, one counter per node",
        "hold-back": "the time that a received message waits for earlier ones before it is delivered",
        "[BSS91], [CB91], [PC18]": f"{BSS91}; {CB91}; {PC18}",
    },
)
