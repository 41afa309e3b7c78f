"""Claims that all studies of this source make, and how a claim is put."""

from __future__ import annotations

from collections import Counter

from ordercast.experiments.locamu.results import Results, Verdict
from ordercast.experiments.locamu.runs import HELD, LOCAMU, ORDER_HELD, VIOLATED
from ordercast.experiments.locamu.sources import OURS, SHORT
from ordercast.experiments.study import GUARANTEES_HOLD, Claim

PROTOTYPE = "an independent prototype of the corrected protocol: sizes measured, capacities computed from them"
_LITTLE = 0.05


def claim(id_: str, statement: str, measured: str, holds: Verdict, *, source: str = SHORT) -> Claim:
    return Claim(id=id_, source=source, statement=statement, measured=measured, holds=holds)


def guarantees_hold(results: Results) -> Claim:
    judged = Counter(row["judged"] for row in results.rows)
    broken = [f"{row['protocol']} ({row['failed_checks']}), configuration {row['id']}" for row in results.rows
              if row["judged"] == VIOLATED]  # fmt: skip
    measured = (
        f"held in {judged[HELD]} of {len(results.rows)} runs; {judged[ORDER_HELD]} more ended with their windows, and "
        "until then nothing was out of order or delivered twice"
    )
    return claim(
        GUARANTEES_HOLD,
        "Every run holds what its protocol promises: FIFO order for Delta-Neighbourhood, causal order for the others, "
        "and every member delivers everything once.",
        f"{measured}; violated: {'; '.join(broken)}" if broken else measured,
        False if broken else True if judged[HELD] and judged[HELD] + judged[ORDER_HELD] == len(results.rows) else None,
        source=OURS,
    )


def acknowledgements_are_small(results: Results) -> Claim:
    """What the source leaves out of its sizes."""
    shares: dict[str, float] = {}
    for row in results.rows:
        control, header, payload = row["control_bytes_per_copy"], row["metadata_bytes"], row["payload"]
        if isinstance(control, float) and isinstance(header, float) and isinstance(payload, int):
            name = f"{row['protocol']} ({row['sizes']} sizes)"
            shares[name] = max(shares.get(name, 0.0), control / (control + header + payload))
    ours = [share for name, share in shares.items() if name.startswith(LOCAMU)]
    return claim(
        "acknowledgements-are-small",
        f"LoCaMu's acknowledgements and repairs, which the source does not count, take at most {_LITTLE:.0%} of the "
        "bytes of any run.",
        "largest share: " + ", ".join(f"{name} {share:.2%}" for name, share in sorted(shares.items())),
        max(ours) <= _LITTLE if ours else None,
        source=OURS,
    )
