"""What others publish is printed, not obeyed."""

from __future__ import annotations

import pytest

from ordercast.cli.messaging import _as_line
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
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
    assert _as_line(message) == f"t\tk\t{printed}\n"
