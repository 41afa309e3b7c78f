"""`ordercast monitor` reads journals on Spark: exit code 1 tells a violation, 0 that there was none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer

from ordercast.cli.monitoring import monitor
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.trace.journal import Journal, journal_path

if TYPE_CHECKING:
    from pathlib import Path

SENT = [Publication(Origin("ann"), n, Topic("t"), b"x", Guarantee.FIFO) for n in (1, 2, 3)]


def journals(run: Path, delivered: list[Publication]) -> Path:
    (run / "journals").mkdir(parents=True)
    for name, publishes in (("ann", True), ("bob", False)):
        journal = Journal(journal_path(run / "journals", name, 0), packets=False)
        journal.begin(0, life=0)
        for publication in SENT if publishes else ():
            journal.publish(1, publication)
        journal.deliver_many(2, () if publishes else delivered)
        journal.close()
    return run


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_it_exits_with_1_for_a_violation_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor(journals(tmp_path / "right", SENT), once=True)
    assert capsys.readouterr().out == ""

    with pytest.raises(typer.Exit) as told:
        monitor(journals(tmp_path / "wrong", [SENT[0], SENT[2], SENT[1]]), once=True)
    assert told.value.exit_code == 1
    assert capsys.readouterr().out == "fifo: bob delivered ann/t#2 after ann/t#3\n"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "give the journals of a run, or a --broker"),
        ({"broker": ["here"]}, "'here' is not HOST:PORT"),
        ({"broker": ["127.0.0.1:7000"], "once": True}, "--once"),
        ({"broker": ["127.0.0.1:7000"], "topics": ["a.>.b"]}, r"filter 'a\.>\.b'"),
    ],
)
def test_what_it_cannot_watch_is_said_before_anything_starts(given: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        monitor(**given)  # type: ignore[arg-type]
