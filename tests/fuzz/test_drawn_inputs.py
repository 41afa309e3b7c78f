"""Inputs that Hypothesis draws, beside the wounded ones: it knows nothing of a format but builds what it is told.

Bytes of any kind, and well-formed msgpack of any shape: values where others are expected, deep and wide, with numbers
and strings at their limits. What fails is shrunk to its smallest form and kept by Hypothesis for the next run.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(), st.text(max_size=20),
    st.binary(max_size=20),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.one_of(st.text(max_size=8), st.integers(0, 200)), inner, max_size=4),
    ),
    max_leaves=20,
)
_PACKETS = st.tuples(st.integers(0, 130), st.lists(_VALUES, max_size=8)).map(lambda drawn: [drawn[0], *drawn[1]])
_ENCODED = st.one_of(_VALUES, _PACKETS, st.lists(_PACKETS, max_size=3)).map(msgspec.msgpack.encode)
_SPLICED = st.tuples(st.binary(max_size=8), _ENCODED, st.binary(max_size=8)).map(b"".join)
INPUTS = st.one_of(st.binary(max_size=200), _ENCODED, _SPLICED, st.text(max_size=100).map(str.encode))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=INPUTS)
def test_drawn_input_is_a_value_or_the_decoders_one_error(name: str, data: bytes) -> None:
    assert TARGETS[name].fault(data) == ""


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.data())
def test_a_valid_input_with_drawn_bytes_in_it_is_a_value_or_the_one_error(name: str, drawn: st.DataObject) -> None:
    valid = drawn.draw(st.sampled_from(TARGETS[name].seeds))
    start = drawn.draw(st.integers(0, len(valid)))
    end = drawn.draw(st.integers(start, min(len(valid), start + 8)))
    assert (
        TARGETS[name].fault(valid[:start] + drawn.draw(st.one_of(st.binary(max_size=12), _ENCODED)) + valid[end:]) == ""
    )
