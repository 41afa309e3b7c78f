"""The README: short enough to be read, and its program runs."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from ordercast.testing import cluster
from tests.support.loop import run_async

README = (Path(__file__).parents[2] / "README.md").read_text()
MOST_WORDS = 600
AROUND = """
import asyncio

async def main():
{body}
            print(message.payload.decode())
            return

asyncio.run(asyncio.wait_for(main(), 60))
"""


def test_the_readme_has_at_most_600_words_besides_its_programs() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    assert len([word for word in prose.split() if re.search(r"\w", word)]) <= MOST_WORDS


def test_its_program_receives_what_it_publishes() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    async def main() -> None:
        async with cluster(1) as brokers:
            body = textwrap.indent(program.replace("127.0.0.1:7000", brokers.address), "    ").rstrip()
            code = AROUND.format(body=body.removesuffix("..."))
            ran = await _python(code)
            assert (ran.returncode, ran.stdout, ran.stderr) == (0, "deposit 10\n", "")

    run_async(main)


async def _python(code: str) -> subprocess.CompletedProcess[str]:
    import asyncio

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    return subprocess.CompletedProcess(code, process.returncode or 0, out.decode(), err.decode())
