"""Functions that are there in C as well, and which form of them runs. docs/decisions/0025-functions-in-c.md.

The Python is the definition, and complete. The form in C (`compiled.c`) runs where `scripts/compile` has built it
beside this very Python: whoever edits a function, or a constant that it names, runs what was written until it is built
again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

try:
    from ordercast.core import _compiled
except ImportError:
    _built: dict[str, Callable[..., object]] = {}
    _built_beside: tuple[str, ...] = ()
else:
    _built = vars(_compiled)
    _built_beside = tuple(_compiled.BUILT_BESIDE.split())

Function = TypeVar("Function", bound=Callable[..., object])

PYTHON: dict[str, Callable[..., object]] = {}
"""By name: the definition of every function that is there in C as well."""


def also_in_c(function: Function) -> Function:
    """The function's form in C, if there is one that was built beside this definition; else the definition."""
    PYTHON[function.__name__] = function
    return _built[function.__name__] if fingerprint(function) in _built_beside else function  # type: ignore[return-value]


def fingerprint(function: Callable[..., object]) -> str:
    """The name, and a digest of what the function does: its code, and the constants that it names."""
    code = function.__code__
    named = [repr(function.__globals__.get(name)) for name in code.co_names]
    said = repr((code.co_code, code.co_consts, code.co_varnames, function.__defaults__, named))
    return f"{function.__name__}:{hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}"
