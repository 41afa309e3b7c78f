"""Explore a protocol that chooses its neighbours: every interleaving of every configuration, shortest first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ordercast.core.errors import UsageError
from ordercast.explore.brokers.run import BrokerSearch, explore_all, perform, words
from ordercast.explore.brokers.world import DOWN, Moment
from ordercast.explore.overlays.promises import OverlayPromises
from ordercast.explore.overlays.scope import OverlayScope, OverlayTrouble, Post, check_overlay_scope
from ordercast.explore.overlays.stage import OverlayStage
from ordercast.explore.overlays.table import OverlayTable
from ordercast.explore.promises.properties import Histories, Violation
from ordercast.explore.result import Counterexample, Exploration, Replay, Size
from ordercast.explore.scope.publications import parse_edges
from ordercast.explore.stage.schedule import SteppedRun
from ordercast.protocols import lookup


def explore_overlay(
    scope: OverlayScope,
    *,
    keep_going: bool = False,
    limit_states: int | None = None,
    limit_seconds: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Exploration:
    """Run every interleaving of what the scope says, from the moment at which the first links are in use."""
    check_overlay_scope(scope)
    sizes = [Size(messages, len(list(scope.configurations(messages)))) for messages in scope.sizes()]
    result = Exploration(protocol=scope.info.name, nodes=scope.nodes, sizes=sizes, decided=True)
    return explore_all(
        result,
        scope.configurations,
        lambda posts: OverlaySearch(scope, posts),
        lambda posts, search: _tell(scope, posts, search),
        keep_going=keep_going, limit_states=limit_states, limit_seconds=limit_seconds, progress=progress,
    )  # fmt: skip


class OverlaySearch(BrokerSearch):
    """Breadth first over the moments of one configuration, each visited once."""

    who = "n"

    def __init__(self, scope: OverlayScope, posts: tuple[Post, ...]) -> None:
        table = OverlayTable(scope, posts)
        self.judge = OverlayPromises(posts)
        self._begin(table, OverlayStage(table), self.judge)  # type: ignore[arg-type]

    def histories(self, moment: Moment) -> Histories:
        """Of the dead: what they had done before, as far as anybody can tell; nothing is asked of them."""
        return tuple(
            self.table.known[process].history if process != DOWN else dict(moment.last).get(rank, ())
            for rank, process in enumerate(moment.processes)
        )

    def at_rest(self, moment: Moment) -> Violation | None:
        alive = tuple(process != DOWN for process in moment.processes)
        histories = self.histories(moment)
        violation = self.judge.agreement(histories, alive)
        if violation is not None:
            later = self.world.much_later(moment)
            violation = self.judge.agreement(self.histories(later), alive)
        if violation is None:
            self.judge.outcomes.add(histories)
        else:
            self.end = (moment, "")
        return violation


def _tell(scope: OverlayScope, posts: tuple[Post, ...], search: BrokerSearch) -> Counterexample:
    steps = search.schedule()
    assert search.violation is not None
    schedule = _schedule(scope, posts, steps, search.violation)
    performed = perform(OverlaySearch(scope, posts), steps)
    return Counterexample(words(posts), search.violation, schedule, performed.story, performed.orders)


def _schedule(scope: OverlayScope, posts: tuple[Post, ...], steps: list[str], violation: Violation) -> SteppedRun:
    trouble = scope.trouble
    options = msgspec.to_builtins(scope.options)
    defaults = msgspec.to_builtins(scope.info.options())
    return SteppedRun(
        protocol=scope.info.name,
        nodes=scope.nodes,
        edges=[f"n{one}-n{other}" for one, other in scope.edges],
        joins=list(scope.joins),
        publishers=[str(post) for post in posts],
        crash="" if trouble.crash is None else f"n{trouble.crash}",
        cuts=trouble.cuts,
        losses=trouble.losses,
        early=trouble.early,
        timer=trouble.timer if trouble.early else "",
        options={key: value for key, value in options.items() if value != defaults[key]},
        steps=steps,
        violation=violation,
    )


def replay_overlay(schedule: SteppedRun) -> Replay:
    """Perform a schedule of an overlay on fresh machines."""
    info = lookup(schedule.protocol)
    edges = parse_edges(",".join(schedule.edges).replace("n", "")) if schedule.edges else ()
    posts = tuple(Post(_number(text)) for text in schedule.publishers)
    scope = OverlayScope(
        info=info, nodes=schedule.nodes, edges=edges, joins=tuple(schedule.joins),
        publishers=tuple(post.client for post in posts), options=info.parse_options(dict(schedule.options)),
        trouble=OverlayTrouble(
            _number(schedule.crash) if schedule.crash else None, schedule.cuts, schedule.losses, schedule.early,
            schedule.timer or OverlayTrouble().timer,
        ),
    )  # fmt: skip
    check_overlay_scope(scope)
    return msgspec.structs.replace(perform(OverlaySearch(scope, posts), schedule.steps), recorded=schedule.violation)


def _number(text: str) -> int:
    if not text.removeprefix("n").isdecimal() or len(text) > 4:
        raise UsageError(f"schedule: {text!r} is not like 'n1'")
    return int(text.removeprefix("n"))
