"""Preventive causal broadcast on overlays that move: what it costs by size, by latency and by movement."""

from __future__ import annotations

from ordercast.experiments.kit.study import PROTOTYPE, Study
from ordercast.experiments.preventive.figures import latency_figures, movement_figures, size_figures
from ordercast.experiments.preventive.latency_claims import latency_claims
from ordercast.experiments.preventive.movement_claims import movement_claims
from ordercast.experiments.preventive.runs import JUDGED_UP_TO, measure, weigh
from ordercast.experiments.preventive.scales import LATENCIES, MOVEMENTS, SIZES
from ordercast.experiments.preventive.size_claims import size_claims
from ordercast.experiments.preventive.sources import CB91, PC18, SPRAY

_WORDS = {
    "preventive, flood-overlay, vector-overlay": "protocols of Ordercast on the same overlay: causal order by links "
    "that are used when they are safe; no order; causal order by vector clocks with an entry for each who published",
    "vector (closed form)": "a vector clock with an entry for every process",
    "safe link": "a link on which nothing can overtake the past of a message, so that it is used",
    "hop": "the way of a message over one link",
    "phase": "from the opening of a link until it is safe",
    "lock": "a packet that makes a new link safe: it goes to its end over safe links, behind all that came before",
    "mediator": "the process by way of which two others come to have a link, and which lets their locks pass",
    "digest": "what a process says it has, where no lock finds a way",
    "view, exchange": "the links that a process has by Spray; two processes swap half of theirs",
    "churn": "processes that join, leave and crash",
    "memory: vector, counting, links": "how copies are told from news: a number for each who published; what is still "
    "to come over every link, where links stay; the same where they change",
    "K1 to K15": "claims as they were written down before the runs",
    "prototype": PROTOTYPE,
    "[PC18], [SPRAY], [CB91]": f"{PC18}; {SPRAY}; {CB91}",
}
_COMMON = (
    "Processes on an overlay that Spray moves, over first-in first-out connections under virtual time; the overlay "
    "begins as a random regular graph with the degree that Spray comes to. Runs of up to "
    f"{JUDGED_UP_TO:,} processes are judged from their trace; in larger ones gaps and missing deliveries are counted. "
    "Published figures are those of [PC18]. "
)


def _study(name: str, title: str, description: str, **parts: object) -> Study:
    return Study(
        name=name, version=3, title=title, source=PC18, description=_COMMON + description, run=measure, weigh=weigh,
        words=_WORDS, **parts,  # type: ignore[arg-type]
    )  # fmt: skip


STUDIES = (
    _study(
        "preventive-churn",
        "Preventive causal broadcast while links and processes come and go",
        "Varied: how often views are exchanged, how many processes come and go, links with different latencies, the "
        "bound of buffers, mediators that let links go at once, and memories of links in place of a vector; beside "
        "flooding on the same overlay.",
        scales=MOVEMENTS, claims=movement_claims, figures=movement_figures,
    ),
    _study(
        "preventive-latency",
        "Preventive causal broadcast against the latency of links",
        "Varied: how long a hop takes, with an exchange a minute.",
        scales=LATENCIES, claims=latency_claims, figures=latency_figures,
    ),
    _study(
        "preventive-scale",
        "Preventive causal broadcast against the number of processes",
        "Varied: how many processes there are; 20 of them publish. Beside it, vector clocks on the same overlay "
        "(`vector-overlay`), by how many publish. The header of `vector` is a closed form that the tests hold it to.",
        scales=SIZES, claims=size_claims, figures=size_figures,
    ),
)  # fmt: skip
"""Sorted by name."""
