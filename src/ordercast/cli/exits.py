"""Exit codes, and which error means which."""

from __future__ import annotations

from ordercast.core.errors import UsageError

HELD, VIOLATED, BAD_INPUT, ENVIRONMENT_LACKS, UNDECIDED = range(5)


def explain(error: Exception) -> tuple[str | None, int]:
    """The one line and the exit code for an expected error; no line for a bug of ours."""
    from ordercast.trace.store import TraceError
    from ordercast.verify.spark.java import EnvironmentLacks
    from ordercast.verify.spark.session import MasterError

    if isinstance(error, UsageError | TraceError | MasterError):
        return str(error), BAD_INPUT
    if isinstance(error, EnvironmentLacks):
        return str(error), ENVIRONMENT_LACKS
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", BAD_INPUT
    return None, VIOLATED


def worst(codes: list[int]) -> int:
    """The exit code of several results: a violation outweighs an undecided check."""
    for code in (BAD_INPUT, ENVIRONMENT_LACKS, VIOLATED, UNDECIDED):
        if code in codes:
            return code
    return HELD
