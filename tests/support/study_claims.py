"""The claims of a study as a test asks for them: by name, about rows that it made up."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.kit.study import Row, SourceClaim, Study


def judged(study: Study, rows: Sequence[Row]) -> dict[str, SourceClaim]:
    return {claim.id: claim for claim in study.claims(pa.Table.from_pylist(list(rows)))}
