"""How fast does the explorer go through real machines, and what does a state cost? Beside it: no shortcuts at all.

Run: python benchmarks/explorer.py
The plain way copies every machine, channel and history for each transition and compares whole states.
"""

from __future__ import annotations

import copy
import time
import tracemalloc
from typing import Any

from ordercast.explore import explore
from ordercast.explore.machines.behaviour import Behaviour
from ordercast.explore.machines.setting import Setting
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.search.breadth_first import Judge, Search
from ordercast.explore.stage.stage import Stage
from ordercast.protocols import lookup

SCOPES: list[tuple[str, dict[str, Any]]] = [
    ("delporte-fauconnier", {"nodes": 4, "messages": 3}),
    ("daisy-chain", {"nodes": 4, "messages": 3}),
    ("skeen", {"nodes": 3, "messages": 2, "sizes_from": 1}),
    ("daisy-chain", {"nodes": 4, "messages": 4, "ascending": True, "twins_in_order": True}),
]
PLAIN = ("daisy-chain", ((0, 2), (0, 3), (1, 3)))


def plain_transitions_per_second(protocol: str, configuration: Configuration) -> tuple[int, float]:
    """Depth first over whole stages: states, and transitions per second of one core."""
    start = time.process_time()
    stages = [Stage(Setting(lookup(protocol), {}, configuration.nodes, configuration.messages), configuration)]
    seen = {frozen(stages[0])}
    transitions = 0
    while stages:
        stage = stages.pop()
        for step in stage.possible():
            successor = copied(stage)
            successor.take(step)
            transitions += 1
            if (key := frozen(successor)) not in seen:
                seen.add(key)
                stages.append(successor)
    return len(seen), transitions / (time.process_time() - start)


def copied(stage: Stage) -> Stage:
    clone = copy.copy(stage)
    clone.machines = [machine.copy() for machine in stage.machines]
    clone.waiting = {channel: list(queue) for channel, queue in stage.waiting.items()}
    clone.histories = list(stage.histories)
    clone.timers = list(stage.timers)
    return clone


def frozen(stage: Stage) -> Any:
    channels = frozenset((channel, tuple(queue)) for channel, queue in stage.waiting.items())
    return tuple(machine.frozen() for machine in stage.machines), channels, tuple(stage.histories)


def bytes_per_state(protocol: str, configuration: Configuration) -> tuple[int, float]:
    """All memory that one search holds at its end, tables of what was learnt included, per state."""
    info = lookup(protocol)
    tracemalloc.start()
    behaviour = Behaviour(Setting(info, {}, configuration.nodes, configuration.messages))
    search = Search(behaviour, Judge(behaviour, configuration, info.guarantee), lambda _states: None)
    search.run(behaviour.initial(configuration))
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(search.seen), held / len(search.seen)


def main() -> None:
    print(f"{'protocol':22}{'scope':46}{'states':>9}{'transitions':>13}{'machine':>9}{'per cpu s':>11}")
    for protocol, scope in SCOPES:
        found = explore(protocol, **scope)
        words = " ".join(f"{key}={value}" for key, value in scope.items())
        print(
            f"{protocol:22}{words[:45]:46}{found.states:>9,}{found.transitions:>13,}{found.machine_steps:>9,}"
            f"{found.transitions_per_second:>11,.0f}"
        )
    protocol, destinations = PLAIN
    configuration = Configuration(4, destinations)
    states, plain = plain_transitions_per_second(protocol, configuration)
    print(f"{protocol:22}{'the plain way, ' + str(configuration):46}{states:>9,}{'':22}{plain:>11,.0f}")
    for name, given in (("skeen", ((0, 1, 2),) * 2), ("daisy-chain", ((0, 3), (1, 2), (0, 1), (2, 3)))):
        states, size = bytes_per_state(name, Configuration(4, given))
        print(f"{name}: {size:,.0f} bytes per state in a configuration with {states:,} states, tables included")


if __name__ == "__main__":
    main()
