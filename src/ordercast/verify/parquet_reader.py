"""The process that reads Parquet files for another one, which outlives it: `python -m ordercast.verify.parquet_reader`.

Each line of standard input asks for one file (`Wanted`, as JSON). The answer is an Arrow stream of its rows, and after
it one line, a JSON string: what is wrong with the file, or nothing. An answer that breaks off says that it died.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pyarrow as pa

from ordercast.verify.arrow import first_line
from ordercast.verify.parquet import OUT_OF_MEMORY, Wanted, read_pieces

_NOTHING = pa.schema([])


def main() -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin.buffer:
        problem = _answer(msgspec.json.decode(line, type=Wanted), sys.stdout.buffer)
        sys.stdout.buffer.write(msgspec.json.encode(problem) + b"\n")
        sys.stdout.buffer.flush()


def _answer(wanted: Wanted, out: Any) -> str:
    """Write the rows that can be read, and tell what is wrong with the file; empty: nothing."""
    writer = None
    problem = ""
    try:
        for piece in read_pieces(wanted):
            if writer is None:
                writer = pa.ipc.new_stream(out, piece.schema)
            writer.write_table(piece)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - Of a damaged file anything may come, and all of it is about the file.
        problem = _told(error)
    (writer or pa.ipc.new_stream(out, _NOTHING)).close()
    return problem


def _told(error: Exception) -> str:
    try:
        return first_line(error)
    except MemoryError:
        return OUT_OF_MEMORY


if __name__ == "__main__":
    main()
