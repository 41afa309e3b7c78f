"""Base classes of the tables of a scenario file."""

from __future__ import annotations

import msgspec


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file: an unknown key is an error, never ignored."""


class Kind(Table, frozen=True, tag_field="kind"):
    """A table that comes in several kinds."""


class Uniform(Kind, frozen=True, tag="uniform"):
    low_ms: float
    high_ms: float


class Exponential(Kind, frozen=True, tag="exponential"):
    """`min_ms` plus an exponential part."""

    mean_ms: float
    min_ms: float = 0.0


class LogNormal(Kind, frozen=True, tag="lognormal"):
    median_ms: float
    sigma: float


Latency = float | Uniform | Exponential | LogNormal
