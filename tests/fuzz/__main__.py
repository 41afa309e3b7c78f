"""Fuzz every decoder for hours: `python -m tests.fuzz --seconds 3600 [--only NAME]`; try one input: `... NAME HEX`.

What is found is written to `tests/fuzz/corpus/NAME/`, as short as it could be made, for the suite to try from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
import time

from tests.fuzz.engine import CORPUS, FaultError, Target, hunt
from tests.fuzz.targets import TARGETS

_AT_ONCE = 500


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), help="try one input with this decoder")
    parser.add_argument("hex", nargs="?", default="-", help="the input; - is the empty one")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (default: 3600)")
    parser.add_argument("--only", default="", help="only decoders whose name begins so")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="the first seed (default: the time)")
    arguments = parser.parse_args()
    if arguments.target:
        what = TARGETS[arguments.target].fault(bytes.fromhex(arguments.hex.strip("-")))
        print(what or "nothing wrong with it")
        return 1 if what else 0
    chosen = [target for name, target in TARGETS.items() if name.startswith(arguments.only)]
    return _fuzz(chosen, arguments.seconds, arguments.seed)


def _fuzz(chosen: list[Target], seconds: float, first: int) -> int:
    began, tried, faults = time.monotonic(), 0, {}
    for seed in itertools.count(first):
        for target in chosen:
            if time.monotonic() - began > seconds:
                kinds = f"{len(faults)} kinds of fault"
                print(f"fuzz: {tried} inputs to {len(chosen)} decoders, {kinds}, {seconds:.0f} s", flush=True)
                return 1 if faults else 0
            cases = min(_AT_ONCE, target.cases)
            tried += cases
            try:
                hunt(target, seed, cases)
            except FaultError as fault:
                kind = (target.name, fault.what.partition(":")[0])
                if kind not in faults:
                    faults[kind] = fault
                    print(fault, _kept(fault), sep="\n", flush=True)
    raise AssertionError("seeds do not end")


def _kept(fault: FaultError) -> str:
    directory = CORPUS / fault.target.name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{hashlib.sha256(fault.data).hexdigest()[:12]}.bin"
    path.write_bytes(fault.data)
    return f"  kept: {path.relative_to(CORPUS.parents[2])}"


if __name__ == "__main__":
    sys.exit(main())
