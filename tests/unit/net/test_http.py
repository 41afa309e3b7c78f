"""Requests that a proxy on the way might understand in another way are refused."""

from __future__ import annotations

import pytest

from ordercast.net.http import BadRequest, parse_head


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding : chunked",
        b"Content-Length : 5",
        b" Content-Length: 5",
        b"X: y\r\n Content-Length: 5",
        b"X: y\nContent-Length: 5",
        b"X: y\rContent-Length: 5",
        b"X: y\x0bContent-Length: 5",
        b"X: y\x1cContent-Length: 5",
        b"X: y\x00",
        b"no colon",
        b": nameless",
        b"Host: a\r\nHost: b",
        b"Authorization: Bearer a\r\nAuthorization: Bearer b",
        b"Origin: http://a\r\norigin: http://b",
    ],
)
def test_whatever_could_be_understood_in_two_ways_is_refused(fields: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_head(b"POST /publish/t HTTP/1.1\r\n" + fields + b"\r\n\r\n")


def test_what_tools_and_browsers_send_is_understood() -> None:
    head = b"GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\nAccept: */*\r\naccept: text/html\r\nX-Empty:\r\n\r\n"
    request = parse_head(head)
    assert (request.method, request.path, request.query) == ("GET", "/a b", {"x": ["1"]})
    assert request.fields == {"host": "[::1]:8080", "accept": "text/html", "x-empty": ""}
