"""Turns errors of requests into the statuses that HTTP has for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ordercast.api.errors import HistoryLost, PublishRefused, SubscribeDenied
from ordercast.core.errors import UsageError
from ordercast.net.http import BadRequest


@contextmanager
def answers() -> Iterator[None]:
    """Errors of a client of the broker become answers."""
    try:
        yield
    except BadRequest:
        raise
    except UsageError as error:
        raise BadRequest(400, str(error)) from None
    except (PublishRefused, SubscribeDenied) as error:
        raise BadRequest(403, str(error)) from None
    except HistoryLost as error:
        raise BadRequest(404, str(error)) from None
    except TimeoutError as error:
        raise BadRequest(504, str(error)) from None
    except ConnectionError as error:
        raise BadRequest(503, str(error)) from None
