"""Optional dependencies: a missing one becomes one line that says which extra brings it."""

from __future__ import annotations

import importlib.util

_EXTRA_OF = {
    "matplotlib": "report",
    "numba": "verify",
    "numpy": "verify",
    "pandas": "spark",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyarrow": "verify",
    "pyspark": "spark",
}
"""Import name to the extra of ours that installs it."""


def expect(*modules: str) -> None:
    """An ImportError that names the first module which is not there: before the work that would need it in the end."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def missing_extra(error: ImportError) -> str:
    """The line for an import that failed because an extra is not installed; empty for any other failure."""
    module = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(module)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return ""
    return f"this needs {module}, which is not installed: pip install 'ordercast[{extra}]'"
