"""What others publish is printed, not obeyed."""

from __future__ import annotations

import json

import pytest

from ordercast.cli.messaging import as_full_line, as_json, as_line, parsed_headers
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.publications import Publication


@pytest.mark.parametrize(
    ("payload", "printed"),
    [
        (b"plain \xc3\xa9t\xc3\xa9", "plain \u00e9t\u00e9"),
        (b"\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"),
        (b"two\nlines\tand\r", "two\\nlines\\tand\\r"),
        (b"\xff\xe2\x80\xae", "\\xff\\u202e"),
    ],
)
def test_control_characters_of_a_payload_are_spelled_out(payload: bytes, printed: str) -> None:
    message = Publication(Origin("ann"), 1, Topic("t"), payload, Guarantee.CAUSAL, ("k",))
    assert as_line(message) == f"t\tk\t{printed}\n"


def test_headers_and_time_are_printed_where_they_are_asked_for() -> None:
    extras = Extras(headers=((b"kind", b"order\x07"),), expires_ns=2_000_000_000)
    message = Publication(Origin("ann"), 1, Topic("t"), b"x", Guarantee.CAUSAL, ("k",), 1_500_000_000, extras)

    assert as_full_line(message) == "t\tk\t1970-01-01T00:00:01.500+00:00\tkind=order\\x07\tx\n"
    told = json.loads(as_json(message))
    assert (told["headers"], told["expires_at"]) == ({"kind": "order\x07"}, "1970-01-01T00:00:02+00:00")


@pytest.mark.parametrize("given", [["kind"], ["=order"], ["kind=a", "kind=b"]])
def test_a_header_that_is_no_name_and_value_is_named(given: list[str]) -> None:
    assert parsed_headers(["kind=a=b", "empty="]) == {b"kind": b"a=b", b"empty": b""}
    with pytest.raises(UsageError, match=f"--header '{given[-1]}': NAME=VALUE is needed"):
        parsed_headers(given)
