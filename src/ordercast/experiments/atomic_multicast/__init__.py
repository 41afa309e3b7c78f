"""Atomic multicast compared: Skeen, Delporte-Fauconnier and the daisy chain, under the loads of the article on it."""

from __future__ import annotations

from ordercast.experiments.atomic_multicast.claims import (
    clocks_claims,
    groups_claims,
    random_claims,
    tcp_claims,
    tpcc_claims,
)
from ordercast.experiments.atomic_multicast.figures import (
    clocks_figures,
    groups_figures,
    random_figures,
    tcp_figures,
    tpcc_figures,
)
from ordercast.experiments.atomic_multicast.runs import measure, weigh
from ordercast.experiments.atomic_multicast.scales import CLOCKS_SCALES, GROUPS_SCALES, RANDOM_SCALES, TPCC_SCALES
from ordercast.experiments.atomic_multicast.sources import DCC
from ordercast.experiments.atomic_multicast.tcp import TCP_SCALES
from ordercast.experiments.atomic_multicast.tcp import measure as measure_processes
from ordercast.experiments.kit.study import Study

_NO_VALUES = "\n\nThe article's curves are not at hand as numbers, so that no value of it is drawn beside ours."
_SET_UP = (
    " Every client sends, waits for its answer and sends again. A server handles one input at a time: 8 µs, 2 more a "
    "delivery, 8 more a packet sent, and 0.01 for each byte in or out. Links take 0.05 ms and an exponential 0.02 ms "
    "more, in order. Latency is what clients see, after a warm-up of a fifth of the messages. Every run is simulated, "
    f"measured from its trace and judged.{_NO_VALUES}"
)
_WORDS = {
    "DCC": "the article's daisy chain: the rule strict with whole clocks; with reduced clocks it is DCC/RV",
    "strict, lite, cover": "rules by which the daisy chain skips servers that are no destinations, the strictest first",
    "whole, reduced clocks": "all counters in every packet, or those that changed since the last one on the channel; "
    "reduced where it is not said",
    "D-F": "Delporte-Fauconnier",
    "rand2, rand4, rand8, randN": "messages to 2, 4, 8 random servers, or to any number of them",
    "2x8, 4x4, 8x2": "servers in a group, and number of groups",
    "TPC-C": "a benchmark of transactions at a wholesaler; here a server is a warehouse",
    "visit": "a server handles a message that is not for it; a hop is fast if it skips such servers",
    "Q1 to Q11": "claims of the article",
}

RANDOM_STUDY = Study(
    name="atomic-random",
    version=1,
    title="Atomic multicast to random servers: latency against throughput",
    source=DCC,
    description="Skeen, Delporte-Fauconnier and the daisy chain with each of its rules, among 16 servers: messages go "
    "to 2, 4 or 8 random ones, or to any number of them." + _SET_UP,
    scales=RANDOM_SCALES,
    run=measure,
    claims=random_claims,
    figures=random_figures,
    weigh=weigh,
    words=_WORDS,
)

TPCC_STUDY = Study(
    name="atomic-tpcc",
    version=1,
    title="Atomic multicast to the warehouses of TPC-C transactions",
    source=DCC,
    description="Skeen, Delporte-Fauconnier and the daisy chain with each of its rules, among 16 servers with a "
    "warehouse each: most transactions stay at home, about every tenth touches another warehouse." + _SET_UP,
    scales=TPCC_SCALES,
    run=measure,
    claims=tpcc_claims,
    figures=tpcc_figures,
    weigh=weigh,
    words=_WORDS,
)

GROUPS_STUDY = Study(
    name="atomic-groups",
    version=1,
    title="Atomic multicast to disjoint groups, some messages leaving them",
    source=DCC,
    description="16 servers in eight groups of two, four of four or two of eight. Strided groups have other groups' "
    "servers between their members, contiguous ones do not. Some messages go to random servers instead; for the "
    "conclusion of the article, sets of random servers are measured too." + _SET_UP,
    scales=GROUPS_SCALES,
    run=measure,
    claims=groups_claims,
    figures=groups_figures,
    weigh=weigh,
    words=_WORDS,
)

CLOCKS_STUDY = Study(
    name="atomic-clocks",
    version=1,
    title="The clocks of the daisy chain: whole or reduced, for 4, 8 and 16 servers",
    source=DCC,
    description="The daisy chain under each of its rules, with all counters in every packet or only those that changed "
    "since the last one on the same channel, on TPC-C transactions." + _SET_UP,
    scales=CLOCKS_SCALES,
    run=measure,
    claims=clocks_claims,
    figures=clocks_figures,
    weigh=weigh,
    words=_WORDS,
)

TCP_STUDY = Study(
    name="atomic-tcp",
    version=1,
    title="Atomic multicast among real processes",
    source=DCC,
    description="Skeen, Delporte-Fauconnier and the daisy chain over TCP on this machine: four processes, each with a "
    "server and two clients, messages to two of the servers or to all of them. The times are those of the machine and "
    "differ from run to run, so claims are judged by medians. Every run is measured from its trace and judged."
    + _NO_VALUES,
    scales=TCP_SCALES,
    run=measure_processes,
    claims=tcp_claims,
    figures=tcp_figures,
    words=_WORDS,
)

STUDIES = (CLOCKS_STUDY, GROUPS_STUDY, RANDOM_STUDY, TCP_STUDY, TPCC_STUDY)
