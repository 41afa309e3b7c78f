"""LoCaMu in large systems and under faults: the worst cases of figure 5.4, thousands of nodes, crashes everywhere."""

from __future__ import annotations

from ordercast.experiments.kit.study import Study
from ordercast.experiments.locamu.sources import LOCAMU, WORDS
from ordercast.experiments.locamu_scale import (
    large,
    large_claims,
    large_figures,
    storm_claims,
    storm_figures,
    storm_runs,
    worst_case_claims,
    worst_case_figures,
    worst_cases,
)

WORST_CASE_STUDY = Study(
    name="locamu-5.4",
    version=1,
    title="Worst cases of header and memory, up to 65,536 nodes",
    source=LOCAMU,
    description="Figure 5.4 of the source from closed forms: LoCaMu, CBCAST and Causal Barriers with 1,500 groups "
    "whose sizes follow Zipf's law, against the number of nodes (a: header, b: memory), f (c) and the degree of the "
    "tree (d). Beside it, simulated runs in which everyone publishes at the same instants, whose largest headers are "
    "held against the closed forms, by the source's count and on the wire. Every run is judged.",
    scales=worst_cases.SCALES,
    run=worst_cases.measure,
    claims=worst_case_claims.claims,
    figures=worst_case_figures.figures,
    weigh=worst_cases.weigh,
    words=WORDS,
)

LARGE_STUDY = Study(
    name="locamu-scale",
    version=1,
    title="LoCaMu with thousands of nodes: header, memory and time against the size of the system",
    source=LOCAMU,
    description="Binary trees, f = 1, real messages of 32 bytes from eight publishers to everyone, or each to one of "
    "the groups of its publisher, where there is a group below every interior node. Each configuration has a process "
    "of its own and runs twice: left alone, for time and memory, and looked at packet by packet, for headers and the "
    "judge. Times and memory of the process depend on the machine and do not repeat byte for byte. The quick scale "
    "goes to 2,047 nodes, the paper scale to 16,384.",
    scales=large.SCALES,
    run=large.measure,
    claims=large_claims.claims,
    figures=large_figures.figures,
    weigh=large.weigh,
    words=WORDS,
)

FAULTS_STUDY = Study(
    name="locamu-faults",
    version=3,
    title="Crashes everywhere: what they cost LoCaMu, and what its baselines do meanwhile",
    source=LOCAMU,
    description="A binary tree, one group of all nodes, eight publishers, 2 Mb/s a node for both directions, 1 ms a "
    "link. Every 200 ms one interior node crashes, or the next quarter of all nodes, one on every path of three, which "
    "is the most that f = 1 allows. They are back with their state after 150 ms; neighbours notice either after 50 ms. "
    "The load is a half, 16 % or a tenth of what the tree could carry without faults. CBCAST and Delta-Neighbourhood, "
    "whose publishers wait for everyone, get the smallest load and the same crashes. Every run is judged.",
    scales=storm_runs.SCALES,
    run=storm_runs.measure,
    claims=storm_claims.claims,
    figures=storm_figures.figures,
    weigh=storm_runs.weigh,
    words={
        **WORDS,
        "jump": "a copy that goes around a node that is down, to whoever is next behind it",
        "first copy, resend": "a message on its way over a link; the same once more, over another one or again",
        "proxy": "a copy with the header that a node which is now down gave it, passed on in its place",
        "alias": "the other names of a message, for those who may have got it on another way",
    },
)

STUDIES = (WORST_CASE_STUDY, FAULTS_STUDY, LARGE_STUDY)
