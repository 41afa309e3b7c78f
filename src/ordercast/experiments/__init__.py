"""Studies of the sources: configurations swept as Spark tasks, measured, judged against the claims and drawn."""

from __future__ import annotations

from ordercast.core.errors import unknown_name
from ordercast.experiments.atomic_multicast import STUDIES as ATOMIC_MULTICAST
from ordercast.experiments.cluster import STUDIES as CLUSTER
from ordercast.experiments.ginger import STUDIES as GINGER
from ordercast.experiments.kit.engine import Failure, Progress, StudyResult, run_study
from ordercast.experiments.kit.study import SourceClaim, Study
from ordercast.experiments.locamu import STUDIES as LOCAMU
from ordercast.experiments.locamu_scale import STUDIES as LOCAMU_SCALE
from ordercast.experiments.preventive import STUDIES as PREVENTIVE
from ordercast.experiments.vector_overhead import STUDY as VECTOR_OVERHEAD

__all__ = ["STUDIES", "Failure", "Progress", "SourceClaim", "Study", "StudyResult", "lookup", "run_study"]

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (*ATOMIC_MULTICAST, *CLUSTER, *GINGER, *LOCAMU, *LOCAMU_SCALE, *PREVENTIVE, VECTOR_OVERHEAD)
}
"""Every study that comes with Ordercast, sorted by name."""


def lookup(name: str) -> Study:
    """The study called `name`; of an unknown one, the error says the nearest."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]
