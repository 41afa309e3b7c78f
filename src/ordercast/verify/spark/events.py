"""The columns of the trace format in the types of Spark."""

from __future__ import annotations

from ordercast.trace.schema import COLUMNS

_SQL_TYPES = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "list<string>": "array<string>",
    "map<string, string>": "map<string, string>",
}
COLUMN_TYPES = {name: _SQL_TYPES[type_] for name, type_, _ in COLUMNS}
SCHEMA = ", ".join(f"`{name}` {type_}" for name, type_ in COLUMN_TYPES.items())
