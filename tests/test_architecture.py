"""The rules of the house: who imports whom, what machines must not do, which pages must exist and be current."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import typing
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

from ordercast.cli.app import app
from ordercast.core.messages import Packet
from ordercast.core.state import State, Value
from ordercast.protocols import CATALOGUE
from ordercast.scenario.model import Scenario
from ordercast.trace.describe import trace_format_page
from ordercast.verify.verdict import CHECKS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ordercast"
MACHINE_PACKAGES = ("core", "overlay", "protocols", "pubsub", "broker", "client")

# Calls that would let the outside into a machine, or hash order into its behaviour.
BANNED_CALLS = {"open", "print", "input", "exec", "eval", "hash", "id", "__import__"}
BANNED_MODULES = {
    "asyncio",
    "socket",
    "threading",
    "time",
    "random",
    "logging",
    "pyspark",
    "os",
    "secrets",
    "uuid",
    "datetime",
}


def _lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(directory / "src")}
    return subprocess.run(
        [*command, "--no-cache"], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contracts, where a test may break them."""
    copy = tmp_path_factory.mktemp("package")
    shutil.copytree(SOURCE, copy / "src" / "ordercast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def test_the_contracts_about_imports_hold(package_copy: Path) -> None:
    result = _lint_imports(package_copy)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/ids.py", "import ordercast.sim.run", "arrows point down"),
        ("sim/links/host.py", "import ordercast.verify.verdict", "arrows point down"),
        ("core/ids.py", "import random", "machines are pure"),
        ("overlay/graphs.py", "import time", "machines are pure"),
        ("protocols/shared/seen.py", "import logging", "machines are pure"),
        ("pubsub/received.py", "import random", "machines are pure"),
        ("broker/tree/lease.py", "import time", "machines are pure"),
        ("client/edge.py", "import socket", "machines are pure"),
        ("broker/node.py", "import ordercast.client.machine", "arrows point down"),
        ("verify/verdict.py", "import ordercast.core.messages", "the judge does not import the accused"),
        ("verify/verdict.py", "import ordercast.trace.recorder", "the judge does not import the accused"),
    ],
)
def test_each_contract_breaks_when_it_should(package_copy: Path, module: str, line: str, contract: str) -> None:
    file = package_copy / "src" / "ordercast" / module
    text = file.read_text()
    try:
        file.write_text(f"{text}\n{line}\n")
        result = _lint_imports(package_copy)
    finally:
        file.write_text(text)
    assert result.returncode == 1
    assert f"{contract} BROKEN" in result.stdout


def _calls_and_imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(f"{node.func.id}()")
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _machine_files() -> list[Path]:
    return sorted(file for package in MACHINE_PACKAGES for file in (SOURCE / package).rglob("*.py"))


@pytest.mark.parametrize("file", _machine_files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_machines_do_no_input_output_and_look_at_no_clock(file: Path) -> None:
    banned = {f"{name}()" for name in BANNED_CALLS} | BANNED_MODULES
    if file == SOURCE / "core" / "state.py":
        banned.remove("hash()")  # There it is what __hash__ is made of.
    assert not _calls_and_imports(file) & banned


def test_nothing_is_read_by_a_module_that_runs_what_it_reads() -> None:
    """Whoever can write a file must not be able to run code in the process that reads it."""
    for file in SOURCE.rglob("*.py"):
        assert not _calls_and_imports(file) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, file


def test_the_search_for_banned_calls_finds_them(tmp_path: Path) -> None:
    file = tmp_path / "impure.py"
    file.write_text("import time\nfrom os import path\nprint(hash(1))\n")
    assert _calls_and_imports(file) == {"time", "os", "print()", "hash()"}


def test_every_state_declares_only_attributes_that_it_has() -> None:
    """A misspelt durable, constant or derived attribute would be lost, or compared, without anybody noticing."""
    for package in MACHINE_PACKAGES:
        for info in pkgutil.walk_packages([str(SOURCE / package)], f"ordercast.{package}."):
            importlib.import_module(info.name)
    machines = [found for found in _subclasses(State) if found.__module__.startswith("ordercast.")]
    assert {"Broker", "ClientMachine", "TopicNode", "Received", "Flood"} <= {found.__name__ for found in machines}
    for machine in machines:
        text = "".join(Path(sys.modules[base.__module__].__file__ or "").read_text() for base in machine.__mro__[:-1])
        for name in (*machine.durable, *machine.constant, *machine.derived, *(machine.ordered or ())):
            assert re.search(rf"self\.{name}\b|\b{name}: ", text), f"{machine.__name__}: {name!r} is never set"


def test_every_part_of_a_broker_or_client_is_a_state() -> None:
    """An object that can change and is no State would be shared by a machine and its copy."""
    for package in ("pubsub", "broker", "client"):
        for info in pkgutil.walk_packages([str(SOURCE / package)], f"ordercast.{package}."):
            for name, found in vars(importlib.import_module(info.name)).items() if info.name not in AROUND else ():
                if isinstance(found, type) and found.__module__ == info.name and name not in PASSING:
                    frozen = issubclass(found, msgspec.Struct | tuple | Value) or getattr(found, "_is_protocol", False)
                    assert frozen or issubclass(found, State), f"{info.name}.{name}"


PASSING = {"Outflow", "NoBrokerLedger", "NoClientLedger", "Unavailable"}
"""Objects of broker and client that live for one call, or have nothing to remember."""
AROUND = {
    "ordercast.broker.memory_ledger", "ordercast.client.memory_ledger", "ordercast.broker.archive.memory_files",
    "ordercast.broker.archive.topic_archive",
}  # fmt: skip
"""Surroundings that stand beside their port: handed in, no part of a machine."""


def _subclasses(base: type[State]) -> list[type[State]]:
    return [base, *(found for sub in base.__subclasses__() for found in _subclasses(sub))]


def test_light_commands_do_not_load_spark_or_matplotlib() -> None:
    heavy = "[name for name in ('pyspark', 'matplotlib', 'pandas', 'numba') if name in sys.modules]"
    program = f"import sys, ordercast, ordercast.sim, ordercast.cli; print({heavy})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_page_about_the_trace_format_is_up_to_date() -> None:
    page = (ROOT / "docs" / "trace-format.md").read_text()
    assert page == trace_format_page(), "run: python -m ordercast.trace.describe > docs/trace-format.md"


def _tables(hint: Any, found: set[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """Every struct that can be part of a scenario."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found.add(hint)
        for inner in typing.get_type_hints(hint).values():
            _tables(inner, found)
    for argument in typing.get_args(hint):
        _tables(argument, found)
    return found


def test_the_page_about_scenarios_names_every_kind_and_every_key() -> None:
    words = set(re.findall(r"[a-z][a-z_-]*", (ROOT / "docs" / "scenarios.md").read_text()))
    for table in _tables(Scenario, set()):
        missing = {*table.__struct_encode_fields__, table.__struct_config__.tag} - {None} - words
        assert not missing, f"docs/scenarios.md does not mention {missing} of {table.__name__}"


def test_the_page_about_scenarios_lists_the_library() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    listed = set(re.findall(r"^\| `([a-z0-9-]+\.toml)`", page, flags=re.MULTILINE))
    assert listed == {file.name for file in (ROOT / "scenarios").glob("*.toml")}


def test_the_front_page_lists_every_command_and_nothing_else() -> None:
    listed = re.findall(r"`ordercast ([a-z-]+)", (ROOT / "docs" / "index.md").read_text())
    assert set(listed) == set(typer.main.get_group(app).commands)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_protocol_has_a_page(name: str) -> None:
    """A page of its own, or a mention on the page of the protocol that it is a variant of."""
    pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "protocols").glob("*.md")}
    variant_of = [stem for stem in pages if name.startswith(f"{stem}-") and name in pages[stem]]
    assert name in pages or variant_of, f"docs/protocols/{name}.md is missing"


# Coupling: parts are made one after the other, know those they are given, and change only themselves.

MACHINES = tuple(f"ordercast.{package}." for package in MACHINE_PACKAGES)
DEEPEST = 3
"""`self.part.state.number` is as far as anybody looks; what lies behind it is asked for."""
MOST_DEEP_LOOKS = 10
"""In one module, so many attributes may be looked for that deep."""


@cache
def _modules(source: Path) -> dict[str, ast.Module]:
    def name(file: Path) -> str:
        parts = (source.name, *file.relative_to(source).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    return {name(file): ast.parse(file.read_text()) for file in sorted(source.rglob("*.py"))}


def _imports(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Who imports whom, at the top, inside a function or for the type checker only: all the same."""
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names} & modules.keys()
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[module] |= {whole if whole in modules else node.module} & modules.keys()
        found[module].discard(module)
    return found


def _circles(imports: dict[str, set[str]]) -> list[str]:
    """What is left when modules that import nothing, or that nothing imports, are taken away again and again."""
    left = dict(imports)
    while True:
        imported = set().union(*left.values())
        ends = {module for module, needs in left.items() if not needs & left.keys() or module not in imported}
        if not ends:
            return sorted(left)
        left = {module: needs & left.keys() - ends for module, needs in left.items() if module not in ends}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """A circle behind TYPE_CHECKING is one: neither module can be understood without the other."""
    assert _circles(_imports(_modules(SOURCE))) == []


def test_the_search_for_circles_finds_them(tmp_path: Path) -> None:
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "roof.py").write_text("from house import wall\n")
    (package / "wall.py").write_text("if TYPE_CHECKING:\n    from house.floor import Floor\n")
    (package / "floor.py").write_text("def lay():\n    import house.wall\n")
    (package / "cellar.py").write_text("from house.floor import Floor\n")
    assert _circles(_imports(_modules(package))) == ["house.floor", "house.wall"]


def _looks(tree: ast.Module) -> list[tuple[int, str]]:
    """Every chain of attributes that begins at `self`, with its length."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            text = ast.unparse(node)
            if re.fullmatch(r"self(\.\w+)+", text):
                found.append((text.count("."), text))
    return found


def test_no_part_of_a_machine_reaches_through_what_it_was_given() -> None:
    deep = {}
    for module, tree in _modules(SOURCE).items():
        if module.startswith(MACHINES):
            looks = _looks(tree)
            too_deep = [text for depth, text in looks if depth > DEEPEST]
            many = [text for depth, text in looks if depth == DEEPEST]
            if too_deep or len(many) > MOST_DEEP_LOOKS:
                deep[module] = too_deep or many
    assert deep == {}


def _sets_of_others(tree: ast.Module) -> list[str]:
    """`self.part.field = ...` anywhere but in a constructor, where parts that know each other are put together."""
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "__init__"]
    return [
        ast.unparse(node)
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and re.fullmatch(r"self\.\w+(\.\w+)+", ast.unparse(node))
    ]


def test_a_part_of_a_machine_sets_its_own_fields_only() -> None:
    found = {
        module: others
        for module, tree in _modules(SOURCE).items()
        if module.startswith(MACHINES) and (others := _sets_of_others(tree))
    }
    assert found == {}


def test_the_search_for_reaching_and_setting_finds_them() -> None:
    tree = ast.parse(
        "class Part:\n"
        "    def __init__(self):\n        self.a.port = self\n"
        "    def act(self):\n        self.a.b.c.d()\n        self.a.b = 1\n"
    )
    assert max(_looks(tree)) == (4, "self.a.b.c.d")
    assert _sets_of_others(tree) == ["self.a.b"]


CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update",
}  # fmt: skip
"""Methods by which a container in a field is written."""
ONE_WRITER = (
    "ordercast.api.", "ordercast.broker.topics.", "ordercast.broker.tree.", "ordercast.client.", "ordercast.objects.",
    "ordercast.protocols.cluster.", "ordercast.protocols.locamu.", "ordercast.protocols.preventive.",
)  # fmt: skip
"""Machines of many parts: what lies between them must not be changed from everywhere."""


def _written(tree: ast.Module) -> list[tuple[str, str]]:
    """Fields of other objects that a module writes: set, deleted, or a container in them changed."""
    fields = []
    for node in ast.walk(tree):
        place: ast.expr | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            place = node.value if isinstance(node, ast.Subscript) else node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            place = node.func.value
        if isinstance(place, ast.Attribute) and ast.unparse(place.value) != "self":
            fields.append((place.attr, ast.unparse(place)))
    return fields


def _own_fields(tree: ast.Module) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def _writers(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Fields of these modules' classes, each with the modules beside its own that write it, if there are several.

    Fields of the same name count as one: a name that is free of it is a name that says more.
    """
    homes: dict[str, set[str]] = {}
    for module, tree in modules.items():
        for field in _own_fields(tree):
            homes.setdefault(field, set()).add(module)
    writers: dict[str, set[str]] = {}
    for module, tree in modules.items():
        for field, _ in _written(tree):
            if field in homes and module not in homes[field]:
                writers.setdefault(field, set()).add(module)
    return {field: found for field, found in writers.items() if len(found) > 1}


@pytest.mark.parametrize("package", ONE_WRITER)
def test_a_field_has_one_writer_besides_its_own_class(package: str) -> None:
    modules = {module: tree for module, tree in _modules(SOURCE).items() if module.startswith(package)}
    assert len(modules) > 5
    assert _writers(modules) == {}


def test_the_search_for_writers_finds_them() -> None:
    home = ast.parse("class Room:\n    def __init__(self):\n        self.doors, self.lamp = [], 0\n")
    guest = ast.parse("def enter(room):\n    room.doors.append(1)\n    room.lamp = 1\n")
    thief = ast.parse("def leave(room):\n    del room.doors[0]\n")
    assert _writers({"room": home, "guest": guest, "thief": thief}) == {"doors": {"guest", "thief"}}


# The judge


def test_the_judge_imports_of_ours_what_the_map_says_and_its_checks_are_counted_right() -> None:
    imported = {
        node.module
        for module, tree in _modules(SOURCE).items()
        if module.startswith("ordercast.verify")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ordercast.")
    }
    readers = {"arrow_schema", "schema", "store", "collect"}
    assert {name for name in imported if not name.startswith("ordercast.verify")} == {
        f"ordercast.trace.{reader}" for reader in readers
    }
    assert "nothing of ours but what reads a run, `trace`'s schemas,\nstore and collect" in (
        (ROOT / "ARCHITECTURE.md").read_text()
    )
    assert len(CHECKS) == 13
    assert "the thirteen checks" in (ROOT / "docs" / "index.md").read_text()


# Names


PACKETS_OF_SEVERAL_PROTOCOLS = {
    "Ack", "Bye", "Data", "Denied", "Done", "Farewell", "Granted", "Hello", "Mark", "Prepare", "Snapshot", "Welcome",
}  # fmt: skip
"""Each protocol's source has its own word for its packets, and traces name packets by it: these stay."""
OF_BOTH_LIBRARIES = {"Client", "History", "Inbox"}
"""`ordercast.blocking` is the library for programs without asyncio: what is the same there is called the same."""


def _class_names(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Class names that several classes have, each with the modules of these classes."""
    found: dict[str, list[str]] = {}
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return {name: homes for name, homes in found.items() if len(homes) > 1}


def test_one_class_name_has_one_meaning() -> None:
    twins = _class_names(_modules(SOURCE))
    assert twins.keys() == PACKETS_OF_SEVERAL_PROTOCOLS | OF_BOTH_LIBRARIES
    for name in PACKETS_OF_SEVERAL_PROTOCOLS:
        for home in twins[name]:
            assert issubclass(getattr(importlib.import_module(home), name), Packet), f"{name} of {home} is no packet"
    for name in OF_BOTH_LIBRARIES:
        assert {home for home in twins[name] if not home.startswith("ordercast.api.")} == {"ordercast.blocking"}


def test_the_search_for_shared_class_names_finds_them() -> None:
    trees = {"house.roof": ast.parse("class Beam: ..."), "house.cellar": ast.parse("def f():\n    class Beam: ...")}
    assert _class_names(trees) == {"Beam": ["house.roof", "house.cellar"]}
    assert _class_names({"house.roof": trees["house.roof"]}) == {}


def test_every_rule_that_code_cites_is_on_a_page_and_says_what_it_is_about() -> None:
    """Steps within a rule (BRK-M6.3) are numbered on its page."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    rules = set(re.findall(r"\b[A-Z]{3}-[A-Z]*[0-9]+", pages))
    assert len(rules) > 300
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        cited = {rule for rule in re.findall(r"\b([A-Z]{3}-[A-Z]*[0-9]+)\b", text) if rule[:3] not in NO_SPECS}
        assert cited <= rules, f"{file}: {cited - rules} are on no page"
        alone = re.search(r'"""([A-Z]{3}-[A-Z0-9.]+|, | to | and )+\."""', text)
        assert not alone, f"{file}: a rule alone is no docstring: {alone}"


NO_SPECS = {"CRC", "SHA"}
"""Algorithms whose names look like rules."""

RIDDLE = re.compile(r"(What|Who|Whoever|Whom|Whose|That|Where|How|When)\b")
"""A docstring that begins so has no subject: its reader learns what somebody does, and not what this is."""


def _without_subject(modules: dict[str, ast.Module]) -> list[str]:
    """Modules, and classes as `module.Class`, whose docstring does not say what they are."""
    return [
        f"{module}.{node.name}" if isinstance(node, ast.ClassDef) else module
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef) and RIDDLE.match(ast.get_docstring(node) or "")
    ]


def test_docstrings_of_modules_and_classes_have_a_subject() -> None:
    assert _without_subject(_modules(SOURCE)) == []
    tree = ast.parse('"""Beams."""\nclass Beam:\n    """What carries the roof."""\n')
    assert _without_subject({"house.roof": tree}) == ["house.roof.Beam"]


MOST_MODULES = 25
"""A folder with more of them is given parts."""


def test_no_folder_is_a_heap() -> None:
    folders = [folder for folder in SOURCE.rglob("*") if folder.is_dir()]
    assert len(folders) > 50
    sizes = {folder.relative_to(SOURCE): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def _never_run(tree: ast.Module) -> list[str]:
    """Tests with a function inside that nothing in them calls or passes on."""
    return [
        f"{test.name}: {inner.name}"
        for test in ast.walk(tree)
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        for inner in test.body
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        and inner.name not in {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    ]


def test_every_test_runs_what_it_says() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [f"{file.name}: {name}" for file in files for name in _never_run(ast.parse(file.read_text()))] == []
    assert _never_run(ast.parse("def test_a():\n    async def main(): ...\n")) == ["test_a: main"]
