"""What a stranger calls base64 and is not ends in the one error of its reader, whatever letters it has."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.doors.nats.naming import answer_subject, answered
from ordercast.doors.web.door import _said
from ordercast.doors.web.forms import PageOrder
from ordercast.net import http
from ordercast.pubsub.extras import Extras
from tests.support.client_edge import publication

NO_BASE64 = ["é", "Ѐ", "a", "====="]


@pytest.mark.parametrize("said", NO_BASE64)
def test_an_order_of_a_page(said: str) -> None:
    with pytest.raises(UsageError, match="base64"):
        _ = PageOrder(op="publish", topic="t", base64=said).payload


@pytest.mark.parametrize("said", NO_BASE64)
def test_credentials_of_a_request(said: str) -> None:
    with pytest.raises(http.BadRequest, match="user:token in base64"):
        _said(f"Basic {said}")


@pytest.mark.parametrize("said", ["é", "Ѐ"])
def test_a_subject_that_answers_a_request(said: str) -> None:
    request = msgspec.structs.replace(publication("bob~1", 1), extras=Extras(reply_to="t"))
    prefix = answer_subject(request).rpartition(".")[0]
    with pytest.raises(UsageError, match="answers nothing"):
        answered(f"{prefix}.{said}")
