"""Claims that all studies of this source make, and how a claim is put."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.experiments.kit.claims import HELD, VIOLATED, guarantees_hold, violations
from ordercast.experiments.kit.results import Verdict
from ordercast.experiments.kit.study import ORDER_HOLDS, OURS, Row, SourceClaim
from ordercast.experiments.locamu.results import LocamuResults
from ordercast.experiments.locamu.runs import COMPLETE, LOCAMU, ORDER_HELD
from ordercast.experiments.locamu.sources import SHORT
from ordercast.experiments.locamu.style import SIZES

_LITTLE = 0.05


def claim(id_: str, statement: str, measured: str, holds: Verdict, *, source: str = SHORT) -> SourceClaim:
    return SourceClaim(id=id_, source=source, statement=statement, measured=measured, holds=holds)


def promises(results: LocamuResults) -> list[SourceClaim]:
    """Order everywhere; and that nothing is missing where that can be said."""
    return [_order_holds(results.rows), _guarantees_hold([row for row in results.rows if row["drain"]])]


def _order_holds(rows: Sequence[Row]) -> SourceClaim:
    good = [row for row in rows if row["judged"] in (HELD, ORDER_HELD)]
    broken = [row for row in rows if row["judged"] == VIOLATED and row["failed_checks"] != COMPLETE]
    return claim(
        ORDER_HOLDS,
        "No run delivers anything twice or out of order, until its end or that of its window: FIFO order for "
        "Delta-Neighbourhood, causal order for the others.",
        f"held in {len(good)} of {len(rows)} runs{violations(broken)}",
        False if broken else True if rows and len(good) == len(rows) else None,
        source=OURS,
    )


def _guarantees_hold(drained: Sequence[Row]) -> SourceClaim:
    return guarantees_hold(
        drained,
        f"Every run that went on until everything had arrived ({len(drained)} of them) holds what its protocol "
        "promises: its order, and every member delivers everything once.",
    )


def acknowledgements_are_small(results: LocamuResults) -> SourceClaim:
    """A claim about acknowledgements, which the source leaves out of its sizes."""
    shares: dict[str, float] = {}
    for row in results.rows:
        control, header, payload = row["control_bytes_per_copy"], row["metadata_bytes"], row["payload"]
        if isinstance(control, float) and isinstance(header, float) and isinstance(payload, int):
            name = f"{row['protocol']} ({SIZES[str(row['sizes'])]})"
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
