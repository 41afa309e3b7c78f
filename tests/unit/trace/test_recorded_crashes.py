"""The crash of a killed process, written down by whoever killed it."""

from __future__ import annotations

from pathlib import Path

from ordercast.trace.collect import journal_tables
from ordercast.trace.journal import Journal, journal_path, record_crash
from ordercast.trace.schema import JOURNALS


def test_a_crash_is_dated_by_whoever_killed_the_process_and_told_once(tmp_path: Path) -> None:
    """A torn last line is no row, and must not swallow the one behind it."""
    directory = tmp_path / JOURNALS
    directory.mkdir()
    path = journal_path(directory, "b0", 0)
    journal = Journal(path, packets=False)
    journal.begin(5, life=0)
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"repair_st')
    record_crash(path, 70)
    second = Journal(journal_path(directory, "b0", 9), packets=False)
    second.begin(90, life=1, state="lost")
    second.end(95)
    second.close()
    (table,) = journal_tables(tmp_path, "run")
    assert table["kind"].to_pylist() == ["join", "crash", "recover"]
    assert table["time_ns"].to_pylist() == [5, 70, 90]
