"""A protocol of the user's own: what `new-protocol` writes works as printed, and mistakes are told in one line."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ordercast.cli.exits import BAD_INPUT, FAILED, HELD, INTERRUPTED, VIOLATED
from tests.support.commands import Command

HOLDING_BACK = (
    "        while (ready := held.pop(due, None)) is not None:\n            out.deliver(ready)\n            due += 1\n"
)
DELIVERY = "            out.deliver(ready)\n"
TWICE = (DELIVERY, DELIVERY + DELIVERY)
TEMPLATE = Path(__file__).parents[2] / "src/ordercast/cli/template/own_protocol.py"


@pytest.fixture
def command(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """In a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return command


@pytest.fixture
def changed(command: Command, tmp_path: Path) -> Callable[..., str]:
    """Writes the template with changes; returns the file's name."""
    assert command("new-protocol", "mine")[0] == 0

    def write(*changes: tuple[str, str]) -> str:
        text = TEMPLATE.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "mine.py").write_text(text, encoding="utf-8")
        return "mine.py"

    return write


def assert_one_line(err: str, *words: str) -> None:
    assert err.startswith("ordercast: "), err
    assert err.count("\n") == 1, err
    for word in words:
        assert word in err, err


# --- the template ---


def test_what_new_protocol_writes_can_be_simulated_explored_and_run_at_once(command: Command) -> None:
    code, out, err = command("new-protocol", "my-order")
    assert (code, out) == (HELD, "my_order.py\nmy_order.toml\n")
    printed = err.removeprefix("next: ").split(" && ")
    assert [words.split()[:2] for words in printed] == [["ordercast", "simulate"], ["ordercast", "verify"]]
    assert command(*printed[0].split()[1:])[0] == HELD
    assert command("verify", "--no-spark", "RUN")[0] == HELD
    assert command("explore", "my_order.py", "--overtaking")[0] == HELD
    assert command("run", "my_order.toml", "--protocol", "my_order.py", "--out", "REAL")[0] == HELD
    assert command("verify", "--no-spark", "REAL")[0] == HELD


def test_new_protocol_overwrites_nothing(command: Command) -> None:
    command("new-protocol", "mine")
    code, _, err = command("new-protocol", "mine")
    assert code == BAD_INPUT
    assert_one_line(err, "mine.py: is there already")


@pytest.mark.parametrize("name", ["", "My Order", "../mine", "1st", "a--b"])
def test_a_name_that_could_not_be_a_module_is_refused(command: Command, name: str) -> None:
    code, _, err = command("new-protocol", name)
    assert code == BAD_INPUT
    assert_one_line(err, "NAME")


def test_the_template_without_its_holding_back_is_caught_by_explorer_and_judge(
    command: Command, changed: Callable[..., str]
) -> None:
    """The guide's second step."""
    mine = changed((HOLDING_BACK, "        out.deliver(message)\n"))
    code, out, _ = command("explore", mine, "--overtaking")
    assert code == VIOLATED
    assert "violated: fifo" in out
    command("simulate", "mine.toml", "--protocol", mine, "--out", "RUN")
    assert command("verify", "--no-spark", "RUN")[0] == VIOLATED


# --- state and packets that cannot be explored ---


def test_state_that_copies_would_share_is_refused_by_its_name(command: Command, changed: Callable[..., str]) -> None:
    mine = changed(
        ("        self.neighbours = place.neighbours\n",
         "        self.neighbours = place.neighbours\n        self.count = Counter()\n"),
        ("class OwnProtocol(", "class Counter:\n    value = 0\n\n\nclass OwnProtocol("),
    )  # fmt: skip
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, "OwnProtocol.count: holds a Counter")


@pytest.mark.parametrize(
    ("value", "culprit"),
    [
        ("(Counter(),)", "Counter"), ("([1],)", "list"), ("{(Counter(),)}", "Counter"),
        ("lambda: place", "function"), ("lambda seen=[]: seen.append(1)", "function"),
    ],
)  # fmt: skip
def test_what_could_change_is_found_inside_of_tuples_sets_and_functions(
    command: Command, changed: Callable[..., str], value: str, culprit: str
) -> None:
    mine = changed(
        ("        self.neighbours = place.neighbours\n",
         f"        self.neighbours = place.neighbours\n        self.count = {value}\n"),
        ("class OwnProtocol(", "class Counter:\n    value = 0\n\n\nclass OwnProtocol("),
    )  # fmt: skip
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, f"OwnProtocol.count: holds a {culprit}")


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("SEEN = []", "if SEEN.append(1) or len(SEEN) > 3:\n            return"),
        ("class Kind:\n    seen = 0", "Kind.seen += 1\n        if Kind.seen > 3:\n            return"),
        ("import time", "self.seen_at = time.monotonic_ns()"),
    ],
)
def test_what_a_machine_remembers_elsewhere_or_asks_a_clock_is_no_finding(
    command: Command, changed: Callable[..., str], before: str, line: str
) -> None:
    """Neither a counterexample nor "holds": copies of the machine share it, so that nothing found can be relied on."""
    mine = changed(
        ("class OwnProtocol(", f"{before}\n\n\nclass OwnProtocol("),
        ("        origin = message.origin\n", f"        {line}\n        origin = message.origin\n"),
    )
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, "does not do the same again when it", "outside of its attributes")


def test_what_a_machine_counts_elsewhere_without_effect_is_explored(
    command: Command, changed: Callable[..., str]
) -> None:
    mine = changed(
        ("class OwnProtocol(", "SEEN = []\n\n\nclass OwnProtocol("),
        ("            if neighbour != source:\n", "            SEEN.append(1)\n            if neighbour != source:\n"),
    )
    assert command("explore", mine)[0] == HELD


@pytest.mark.parametrize("again", ["time.monotonic_ns() % 5 > 0", "random.random() < 0.5"])
def test_a_clock_or_chance_is_noticed_where_a_timer_runs_out_when_everyone_settles(
    command: Command, changed: Callable[..., str], again: str
) -> None:
    """Timers run out only there, where groups, losses and suspicions are explored."""
    mine = changed(
        ("class OwnProtocol(", "import random\nimport time\n\n\nclass OwnProtocol("),
        ("        out.complete(message.id)\n",
         "        out.complete(message.id)\n        out.set_timer('again', 5)\n\n"
         "    def on_timer(self, name, out):\n"
         f"        if {again}:\n            out.set_timer('again', 5)\n"),
    )  # fmt: skip
    code, _, err = command(
        "explore", mine, "--groups", "a:0,1,2", "--publish", "0>a,1>a", "--overtaking", "--losses", "1"
    )
    assert code == BAD_INPUT
    assert_one_line(err, "does not do the same again when its timer 'again' runs out")


DROPS_THE_SECOND = "        if {seen}:\n            return\n        self.{then}\n        origin = message.origin\n"


@pytest.mark.parametrize(
    ("first", "seen", "then"),
    [
        ("{1: 0, 2: 0}", "next(iter(self.last)) == 2", "last = {2: 0, 1: 0}"),
        ("False", "self.last is not False", "last = 0"),
        ("Calm(1)", "isinstance(self.last, Angry)", "last = Angry(1)"),
        ("[]", "self.last == ()", "last = ()"),
    ],
)
def test_no_run_is_left_out_because_two_states_look_alike(
    command: Command, changed: Callable[..., str], first: str, seen: str, then: str
) -> None:
    """What comes second is dropped, and nothing but a kind or an order says that it is the second."""
    mine = changed(
        ("class OwnProtocol(",
         "from typing import NamedTuple\n\n\nclass Calm(NamedTuple):\n    level: int\n\n\n"
         "class Angry(NamedTuple):\n    level: int\n\n\nclass OwnProtocol("),
        ("        self.neighbours = place.neighbours\n",
         f"        self.neighbours = place.neighbours\n        self.last = {first}\n"),
        ("        origin = message.origin\n", DROPS_THE_SECOND.format(seen=seen, then=then)),
    )  # fmt: skip
    code, out, _ = command("explore", mine)
    assert code == VIOLATED
    assert "violated: agreement" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("out.send(self.neighbours[0], None)", "violated: invariant: n0 sends a NoneType, which is no packet"),
        ("out.send('n7', OwnPacket(None))", "violated: invariant: n0 sends to n7, which is not its neighbour"),
        ("out.deliver(None)", "violated: integrity: n0 delivers a NoneType, which is no message"),
        ("out.deliver(Message('n0', 1, 't0', b'', Guarantee.FIFO))", "violated: integrity: n0 delivers n0#1, which"),
    ],
)
def test_what_no_machine_may_do_it_may_not_do_when_it_starts(
    command: Command, changed: Callable[..., str], line: str, said: str
) -> None:
    """In no step, so that the schedule has none."""
    start = f"    def on_start(self, out):\n        {line}\n\n"
    mine = changed(("    def on_publish(self", start + "    def on_publish(self"))
    code, out, _ = command("explore", mine, "-o", "start.toml")
    assert code == VIOLATED
    assert said in out
    code, out, _ = command("explore", "--replay", "start.toml", "--trust")
    assert code == VIOLATED
    assert said in out


def test_what_is_sent_is_a_packet(command: Command, changed: Callable[..., str]) -> None:
    mine = changed(
        ("                out.send(neighbour, OwnPacket(message))\n", "                out.send(neighbour, None)\n")
    )
    code, out, _ = command("explore", mine)
    assert code == VIOLATED
    assert "violated: invariant: n0 sends a NoneType, which is no packet" in out


def test_the_name_of_a_timer_that_could_change_is_refused(command: Command, changed: Callable[..., str]) -> None:
    mine = changed(("        out.complete(message.id)\n", "        out.set_timer(['again'], 5)\n"))
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, "a list cannot be the name of a timer")


def test_a_packet_that_cannot_be_compared_is_refused_by_its_field(
    command: Command, changed: Callable[..., str]
) -> None:
    mine = changed(("    message: Message\n", "    message: Message\n    clocks: dict[str, int] = {}\n"))
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, "OwnPacket.clocks: holds a dict")


def test_a_packet_with_something_inside_that_could_change_is_refused_whatever_that_says_of_its_hash(
    command: Command, changed: Callable[..., str]
) -> None:
    mine = changed(
        ("class OwnPacket(",
         "from dataclasses import dataclass\n\n\n@dataclass(frozen=True, eq=False)\nclass Trail:\n    nodes: list\n\n\n"
         "class OwnPacket("),
        ("    message: Message\n", "    message: Message\n    trail: object = Trail([])\n"),
    )  # fmt: skip
    code, _, err = command("explore", mine)
    assert code == BAD_INPUT
    assert_one_line(err, "Trail.nodes: holds a list")


# --- a violation is told apart from code that fails ---


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("self, place: Place, _options: NoOptions", "self", "TypeError"),
        ("        origin = message.origin\n", "        raise InvariantError('two of one')\n", "InvariantError: two of"),
        ("        self.due[origin] = due\n", "        self.due[origin] = due\n        [][1]\n", "IndexError"),
    ],
)  # fmt: skip
def test_code_that_fails_inside_a_run_is_one_line_and_no_violation(
    command: Command, changed: Callable[..., str], old: str, new: str, said: str
) -> None:
    mine = changed((old, new), ("import PeerError\n", "import InvariantError, PeerError\n"))
    code, _, err = command("simulate", "mine.toml", "--protocol", mine, "--out", "RUN")
    assert code == FAILED
    assert_one_line(err, "failed inside", said, "mine.py:" if said != "TypeError" else "")


STEP = "        origin = message.origin\n"
CONSTRUCTOR = "        self.neighbours = place.neighbours\n"
HEAD = "from typing import ClassVar\n"
UNTELLABLE = "class Mute(Exception):\n    def __str__(self) -> str:\n        raise OSError\n"
NO_ERRORS = [
    ("raise SystemExit(0)", "SystemExit: 0"),
    ("raise SystemExit(1)", "SystemExit: 1"),
    ("raise SystemExit", "SystemExit"),
    ("raise GeneratorExit", "GeneratorExit"),
    ("raise EOFError", "EOFError"),
    ("raise __import__('asyncio').CancelledError", "CancelledError"),
    ("raise type('Own', (BaseException,), {})('all\\nis over')", "Own: all is over"),
]
"""What code may raise that is no error, or that a command would take for a word of its own; and what is said then."""


@pytest.mark.parametrize(("raised", "said"), NO_ERRORS)
@pytest.mark.parametrize("where", [STEP, CONSTRUCTOR])
@pytest.mark.parametrize(
    "words", ["simulate mine.toml --protocol mine.py --out RUN", "shrink mine.toml --protocol mine.py -o small.toml"]
)
def test_code_that_ends_the_program_has_failed_whatever_it_ends_it_with(
    command: Command, changed: Callable[..., str], words: str, where: str, raised: str, said: str
) -> None:
    changed((where, f"        {raised}\n{where}"))
    code, out, err = command(*words.split())
    assert (code, out) == (FAILED, "")
    assert_one_line(err, f"failed inside: {said} (", "mine.py:")


@pytest.mark.parametrize(("raised", "said"), [pair for pair in NO_ERRORS if pair[1] != "EOFError"])
@pytest.mark.parametrize("where", [STEP, CONSTRUCTOR])
def test_the_explorer_neither_holds_nor_finds_anything_where_code_ends_the_program(
    command: Command, changed: Callable[..., str], where: str, raised: str, said: str
) -> None:
    code, out, err = command("explore", changed((where, f"        {raised}\n{where}")))
    assert (code, out) == (FAILED, "")
    assert_one_line(err, f"failed inside: {said} (", "mine.py:")


@pytest.mark.parametrize("start", ["simulate mine.toml --out RUN --protocol", "explore"])
@pytest.mark.parametrize(
    ("raised", "said"),
    [*NO_ERRORS, ("raise ValueError('one\\ntwo')", "ValueError: one two"), ("raise Mute", "Mute: (its text")],
)
def test_code_that_cannot_be_loaded_is_bad_input_in_one_line(
    command: Command, changed: Callable[..., str], start: str, raised: str, said: str
) -> None:
    mine = changed((HEAD, f"{HEAD}{UNTELLABLE}{raised}\n"))
    code, out, err = command(*start.split(), mine)
    assert (code, out) == (BAD_INPUT, "")
    assert_one_line(err, f"'mine.py': cannot be loaded: {said}")


@pytest.mark.parametrize("where", [STEP, CONSTRUCTOR])
def test_an_error_whose_text_cannot_be_told_is_one_line(
    command: Command, changed: Callable[..., str], where: str
) -> None:
    mine = changed((HEAD, HEAD + UNTELLABLE), (where, f"        raise Mute\n{where}"))
    code, _, err = command("simulate", "mine.toml", "--protocol", mine, "--out", "RUN")
    assert code == FAILED
    assert_one_line(err, "failed inside: Mute: (its text cannot be told: OSError)", "mine.py:")


@pytest.mark.parametrize(
    ("raised", "said"), [("Mute", "Mute: (its text cannot be told: OSError)"), (r"ValueError('\ud800')", r": \ud800")]
)
def test_the_explorer_shows_the_way_to_an_error_whatever_its_text(
    command: Command, changed: Callable[..., str], raised: str, said: str
) -> None:
    mine = changed((HEAD, HEAD + UNTELLABLE), (STEP, f"        raise {raised}\n{STEP}"))
    code, out, _ = command("explore", mine)
    assert code == VIOLATED
    assert said in out
    assert "smallest configuration" in out


def test_code_that_closes_standard_output_is_one_line(
    command: Command, changed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    mine = changed((STEP, f"        __import__('sys').stdout.close()\n{STEP}"))
    code, _, err = command("simulate", "mine.toml", "--protocol", mine, "--out", "RUN")
    assert code == FAILED
    assert_one_line(err.splitlines(keepends=True)[-1], "failed inside: ValueError")


@pytest.mark.parametrize("where", [HEAD, CONSTRUCTOR, STEP])
@pytest.mark.parametrize("start", ["simulate mine.toml --out RUN --protocol", "explore"])
def test_an_interrupt_ends_the_program_wherever_it_comes(changed: Callable[..., str], start: str, where: str) -> None:
    """A process of its own: an interrupted program ends what other tests of this one share."""
    blank = where[: len(where) - len(where.lstrip())]
    mine = changed((where, f"{where}{blank}raise KeyboardInterrupt\n"))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "ordercast", *start.split(), mine], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "ordercast: interrupted\n")


def test_wrong_constructor_arguments_are_one_line_in_the_explorer_too(
    command: Command, changed: Callable[..., str]
) -> None:
    code, _, err = command("explore", changed(("place: Place, _options: NoOptions", "place: Place")))
    assert code == FAILED
    assert_one_line(err, "failed inside", "TypeError")


def test_the_way_to_a_failure_is_shown_on_request(
    command: Command, changed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERCAST_TRACEBACK", "1")
    mine = changed(("        self.due[origin] = due\n", "        [][1]\n"))
    code, _, err = command("simulate", "mine.toml", "--protocol", mine, "--out", "RUN")
    assert code == FAILED
    assert "Traceback" in err


# --- code is only loaded where the user names it ---


def test_a_scenario_alone_never_runs_code(command: Command, changed: Callable[..., str], tmp_path: Path) -> None:
    mine = changed(('"""own-protocol:', 'open("ran", "w").close()\n"""own-protocol:'))
    scenario = tmp_path / "mine.toml"
    scenario.write_text(f'protocol = "{mine}:PROTOCOL"\n' + scenario.read_text())
    for words in (("simulate", "--out", "R"), ("run", "--out", "R"), ("shrink", "-o", "small.toml")):
        code, _, err = command(words[0], scenario, *words[1:])
        assert code == BAD_INPUT
        assert_one_line(err, "protocol: 'mine.py:PROTOCOL' is code", "--protocol mine.py:PROTOCOL")
    assert not (tmp_path / "ran").exists()


def test_a_shrunk_scenario_of_an_own_protocol_says_how_to_replay_it(
    command: Command, changed: Callable[..., str]
) -> None:
    mine = changed(
        ("            out.deliver(ready)\n", "            out.deliver(ready)\n            out.deliver(ready)\n")
    )
    code, _, err = command("shrink", "mine.toml", "--protocol", mine, "-o", "small.toml")
    assert code == HELD
    replay = re.search(r"replay: ordercast (simulate .*) && ", err)
    assert replay is not None
    assert command(*replay[1].split())[0] == HELD
    assert command("verify", "--no-spark", "RUN")[0] == VIOLATED


def test_a_schedule_is_replayed_from_any_directory_once_it_is_trusted(
    command: Command, changed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = changed(
        ("            out.deliver(ready)\n", "            out.deliver(ready)\n            out.deliver(ready)\n")
    )
    schedules, elsewhere = tmp_path / "found", tmp_path / "else" / "where"
    schedules.mkdir()
    elsewhere.mkdir(parents=True)
    code, _, err = command("explore", mine, "-o", "found/twice.toml")
    assert code == VIOLATED
    assert "--replay found/twice.toml --trust" in err
    monkeypatch.chdir(elsewhere)
    code, _, err = command("explore", "--replay", schedules / "twice.toml")
    assert code == BAD_INPUT
    assert_one_line(err, "is code", "--trust")
    assert command("explore", "--replay", schedules / "twice.toml", "--trust")[0] == VIOLATED
    assert command("explore", tmp_path / mine, "--replay", "../../found/twice.toml")[0] == VIOLATED


def test_a_schedule_in_a_linked_directory_names_its_protocol_from_where_the_directory_is(
    command: Command, changed: Callable[..., str], tmp_path: Path
) -> None:
    mine = changed(TWICE)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "here").symlink_to(tmp_path / "far" / "away")
    assert command("explore", mine, "-o", "here/twice.toml")[0] == VIOLATED
    assert 'protocol = "../../mine.py"' in (tmp_path / "here" / "twice.toml").read_text()
    for schedule in ("here/twice.toml", "far/away/twice.toml"):
        assert command("explore", "--replay", schedule, "--trust")[0] == VIOLATED


# --- the guide ---


def test_the_guide_works_as_printed(command: Command, tmp_path: Path) -> None:
    """Every command of docs/your-own-protocol.md, in its order, with the change that it asks for in between."""
    guide = (Path(__file__).parents[2] / "docs" / "your-own-protocol.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(sh|python)\n(.*?)```", guide, re.DOTALL)
    said = []
    for language, text in blocks:
        if language == "python":
            file = tmp_path / "my_order.py"
            assert HOLDING_BACK in file.read_text()
            file.write_text(file.read_text().replace(HOLDING_BACK, text))
            for module in [name for name in sys.modules if name.endswith("my_order.py")]:
                del sys.modules[module]  # As in a process of its own.
            continue
        for line in re.split(r"\n| && ", text.strip()):
            words = line.split()
            quick = ["--no-spark"] if words[1] == "verify" else []
            said.append((words[1], command(*words[1:], *quick)[0]))
    assert said == [
        ("new-protocol", HELD),
        ("simulate", HELD), ("verify", HELD), ("explore", HELD), ("run", HELD), ("verify", HELD),
        ("explore", VIOLATED), ("explore", VIOLATED),
        ("shrink", HELD),
    ]  # fmt: skip
