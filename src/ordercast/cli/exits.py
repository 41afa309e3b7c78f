"""Exit codes, and which error ends with which code."""

from __future__ import annotations

import resource
import traceback

from ordercast.core.errors import UsageError, saying
from ordercast.core.extras import missing_extra

HELD, VIOLATED, BAD_INPUT, ENVIRONMENT_LACKS, UNDECIDED = range(5)
FAILED = 70
"""Something inside failed that must never fail: a protocol's code, or ours. Brokers end with it, too."""
INTERRUPTED = 130
"""As of a process that Ctrl-C has ended."""
READER_GONE = 141
"""As of a process that a broken pipe has ended, where there was no result yet to exit with."""
_LONGEST = 500
_LEAST_BYTES = 768 << 20
"""Of address space: with less, libraries that the judge loads end the process by themselves, with code 1."""


def lack_of_room() -> str:
    """Why no command can run here: the limit on address space, if it is too low; empty: they can."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= _LEAST_BYTES:
        return ""
    return f"only {limit >> 20} MiB of address space are allowed; {_LEAST_BYTES >> 20} are needed (ulimit -v)"


def explain(error: BaseException) -> tuple[str, int]:
    """The one line and the exit code of an error."""
    from ordercast.trace.store import TraceError
    from ordercast.verify.spark.java import EnvironmentLacks
    from ordercast.verify.spark.session import MasterError, what_gave_out

    if isinstance(error, UsageError | TraceError | MasterError):
        return saying(error), BAD_INPUT
    if isinstance(error, EnvironmentLacks):
        return saying(error), ENVIRONMENT_LACKS
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", BAD_INPUT
    if isinstance(error, MemoryError):
        return "memory is exhausted: this machine has not enough of it for a trace of this size", ENVIRONMENT_LACKS
    if isinstance(error, ImportError) and (line := missing_extra(error)):
        return line, ENVIRONMENT_LACKS
    gave_out = what_gave_out(error)
    return (gave_out, ENVIRONMENT_LACKS) if gave_out else (_failure(error), FAILED)


def _failure(error: BaseException) -> str:
    """A line about what failed inside, and where; ORDERCAST_TRACEBACK in the environment shows the way there."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    said = saying(error)[:_LONGEST]
    return f"failed inside: {type(error).__name__}{': ' if said else ''}{said}{where}"


def worst(codes: list[int]) -> int:
    """The exit code of several results: a violation outweighs an undecided check."""
    for code in (BAD_INPUT, ENVIRONMENT_LACKS, VIOLATED, UNDECIDED):
        if code in codes:
            return code
    return HELD
