"""Subjects of NATS as topics. They are the same letter for letter, but for those that answers go to.

A client of NATS has an inbox of its own, `_INBOX.xyz`, and expects each answer on a subject of its own below it. A
topic for each answer would be a topic for each request; so all of an inbox is one topic, and headers have the subjects.
A Python client knows answers to its requests by the id of the request; for it, a subject is made of topic and id.
"""

from __future__ import annotations

import base64
from collections import OrderedDict

from ordercast.core.errors import UsageError
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.filters import matches
from ordercast.pubsub.publications import Publication

INBOX = "_INBOX."
_ANSWER = "_ANSWER."
SUBJECT_HEADER, REPLY_HEADER = b"Nats-Subject", b"Nats-Reply"
"""The subject that a message was published to, and the one for answers, where the topics do not say it."""
_MOST_QUESTIONS = 10_000


def topic_of(subject: str) -> str:
    """The topic on which what is published to the subject travels."""
    if not subject.startswith(INBOX):
        return subject
    first, second, *_ = subject.split(".")
    return f"{first}.{second}"


def pattern_of(subject: str) -> str:
    """The topic or filter to subscribe to, which takes in at least what the subject does."""
    topic = topic_of(subject)
    return f"{INBOX}*" if topic == f"{INBOX}>" else topic


def takes(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` takes in what was published to the subject."""
    return pattern == subject or matches(pattern, subject)


def answer_subject(entry: Publication) -> str:
    """The subject on which a client of NATS is to answer; empty: nobody waits."""
    extras = entry.extras
    if extras is None or not extras.reply_to:
        return ""
    said = dict(extras.headers).get(REPLY_HEADER)
    if said is not None:
        return said.decode(errors="replace")
    if extras.reply_to.startswith(INBOX):
        return extras.reply_to
    told = f"{extras.reply_to}\n{entry.id}".encode()
    return _ANSWER + base64.urlsafe_b64encode(told).decode().rstrip("=")


def answered(subject: str) -> tuple[str, str] | None:
    """Topic and request that an `answer_subject` was made of; None: it is another subject."""
    if not subject.startswith(_ANSWER):
        return None
    coded = subject.removeprefix(_ANSWER)
    try:
        topic, _, request = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode().partition("\n")
    except ValueError:
        raise UsageError(f"subject {subject[:60]!r} answers nothing") from None
    return topic, request


class Questions:
    """The requests of one client of NATS, the latest of them: answers of Python clients name the request alone."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[str, str] = OrderedDict()

    def asked(self, request: str, reply: str) -> None:
        self._subjects[request] = reply
        if len(self._subjects) > _MOST_QUESTIONS:
            self._subjects.popitem(last=False)

    def subject_of(self, entry: Publication) -> str:
        """The subject of a delivery, as this client names it."""
        extras = entry.extras
        if extras is None:
            return entry.topic
        return _said(extras) or self._subjects.get(extras.answers) or entry.topic


def _said(extras: Extras) -> str:
    return dict(extras.headers).get(SUBJECT_HEADER, b"").decode(errors="replace")
