"""Colours and marks of the protocols, the same in every figure of these studies, and what kinds of sizes are called."""

from __future__ import annotations

from ordercast.experiments.kit.figures import Look

LOOKS = {
    "locamu": Look("LoCaMu", "#0072b2", "o"),
    "delta-neighbourhood": Look("Delta-Neighbourhood", "#e69f00", "s"),
    "cbcast": Look("CBCAST", "#d55e00", "^", "-."),
    "causal-barriers": Look("Causal Barriers", "#009e73", "D", ":"),
}
SIZES = {"model": "source's sizes", "wire": "our encoding"}
