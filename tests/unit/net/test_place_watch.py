"""A broker that looks for its place in vain says so, once, with the settings that may be too short."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ordercast.net.brokers.place_watch import PlaceWatch
from ordercast.pubsub.settings import BrokerSettings


@dataclass
class Tree:
    seeking: bool = True
    is_root: bool = False
    decides: bool = False


def told(tree: Tree, watch: PlaceWatch, caplog: pytest.LogCaptureFixture, looks: int = 40) -> list[str]:
    caplog.clear()
    for _ in range(looks):
        watch.look()
    return [str(vars(record)["facts"]["why"]) for record in caplog.records]


@pytest.mark.parametrize("tree", [Tree(), Tree(seeking=False, is_root=True)])
def test_one_line_names_the_settings_that_may_be_too_short(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    watch = PlaceWatch("b0", tree, BrokerSettings())
    (line,) = told(tree, watch, caplog)
    assert "request_ms" in line
    assert "lease_ms" in line


@pytest.mark.parametrize("tree", [Tree(seeking=False), Tree(seeking=False, is_root=True, decides=True)])
def test_a_broker_in_its_place_says_nothing(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    assert told(tree, PlaceWatch("b0", tree, BrokerSettings()), caplog) == []


def test_a_repair_is_no_search_in_vain_and_a_second_one_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree()
    watch = PlaceWatch("b0", tree, BrokerSettings())
    assert told(tree, watch, caplog, looks=9) == []
    tree.seeking = False
    assert told(tree, watch, caplog) == []
    tree.seeking = True
    assert len(told(tree, watch, caplog)) == 1
