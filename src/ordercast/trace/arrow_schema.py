"""The columns of the trace as an Arrow schema."""

from __future__ import annotations

import pyarrow as pa

from ordercast.trace.schema import COLUMNS

_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "list<string>": pa.list_(pa.string()),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}
EVENT_SCHEMA = pa.schema([(name, _ARROW_TYPES[type_]) for name, type_, _ in COLUMNS])
