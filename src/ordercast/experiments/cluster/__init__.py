"""Studies of causal cluster consistency: what size, load, faults, buffers, entries and real datagrams cost."""

from __future__ import annotations

from ordercast.experiments.cluster.datagrams import STUDY as DATAGRAMS
from ordercast.experiments.cluster.load import STUDY as LOAD
from ordercast.experiments.cluster.recovery_odds import STUDY as RECOVERY_ODDS
from ordercast.experiments.cluster.robustness import STUDY as ROBUSTNESS
from ordercast.experiments.cluster.scale import STUDY as SCALE
from ordercast.experiments.cluster.tickets import STUDY as TICKETS
from ordercast.experiments.kit.study import Study

STUDIES: tuple[Study, ...] = (DATAGRAMS, LOAD, RECOVERY_ODDS, ROBUSTNESS, SCALE, TICKETS)
