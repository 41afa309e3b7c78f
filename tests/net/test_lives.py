"""Which life of a broker begins, and so who begins as root."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.process import Peer
from ordercast.net.brokers.incarnation import FIRST, DataDirectory, choose_life
from ordercast.net.turn_ports import address_of, listening
from tests.support.loop import run_async, until
from tests.support.wires import OPEN, Process, running

ME = Peer("broker", "b0")


async def _chosen(*others: str, last: int | None = None, has_parent: bool = False) -> int:
    directory = {NodeId("b0"): "127.0.0.1:1", **{NodeId(f"x{i}"): address for i, address in enumerate(others)}}
    return await choose_life(ME, directory, OPEN, last=last, has_parent=has_parent)


def test_the_first_broker_of_a_cluster_is_in_its_first_life() -> None:
    async def main() -> None:
        assert await _chosen() == FIRST
        assert await _chosen("127.0.0.1:1") == FIRST  # Nothing listens there.

    run_async(main)


def test_others_that_run_but_have_no_tree_do_not_make_it_a_restart() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            assert await _chosen(b1.address) == FIRST
            await until(lambda: b1.host.counters["closed_local"] == 1)
            assert b1.scribe.ends == []  # Its machine never heard of the question.

    run_async(main)


def test_one_that_knows_a_tree_makes_it_a_restart() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):
            b2.host.term = lambda: 3
            assert await _chosen(b1.address, b2.address) > FIRST

    run_async(main)


def test_silence_is_no_permission_to_begin_as_root() -> None:
    """Somebody is there and says nothing: it may be a tree behind a bad network."""

    async def main() -> None:
        with listening("127.0.0.1:0") as silent:
            assert await _chosen(address_of(silent)) > FIRST

    run_async(main)


def test_a_life_on_record_or_a_parent_to_ask_is_never_a_first_one() -> None:
    async def main() -> None:
        assert await _chosen(last=0) > 0
        assert await _chosen(last=10**15) == 10**15 + 1
        assert await _chosen(has_parent=True) > FIRST

    run_async(main)


@pytest.mark.parametrize("life", [b"7" * 5000, b"-1", b"seven", b"\xff\xfe", b""])
def test_a_record_of_lives_that_makes_no_sense_is_named(life: bytes, tmp_path: Path) -> None:
    (tmp_path / "life").write_bytes(life)
    with pytest.raises(UsageError, match=r"^data: .*life: not a number"):
        DataDirectory(tmp_path).last_life()


def test_a_data_directory_belongs_to_one_broker_of_one_cluster(tmp_path: Path) -> None:
    """Another's log would make a broker answer for a history that is not its own."""
    data = DataDirectory(tmp_path / "b0")
    data.claim("b0", "bank")
    data.claim("b0", "bank")
    with pytest.raises(
        UsageError, match="belongs to broker 'b0' of cluster 'bank', not to broker 'b0' of cluster 'shop'"
    ):
        data.claim("b0", "shop")
    with pytest.raises(UsageError, match="not to broker 'b1' of cluster 'bank'"):
        data.claim("b1", "bank")
    data.release()


def test_what_a_directory_says_about_its_broker_is_for_its_owner_only(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "b0")
    data.claim("b0", "c")
    data.begin(7)
    data.leave()
    data.release()

    files = [path for path in data.path.iterdir() if path.is_file()]
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {path.name: 0o600 for path in files}
    assert len(files) >= 3
