"""The shape of the code: who may import whom, what the core may not touch, and how long things may get.

Read from the syntax trees, so that a rule holds for code that no test runs.
"""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # so that one worker alone parses the modules

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"

# Imports go strictly downward, from a layer to those below it, and on one layer from right to left. A name stands for
# the module or the package of that name in `foldline`, "" for what gathers the public names; `foldline_bench`, a
# distribution of its own, stands on the roof. The picture in docs/architecture.md is this table.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "messages", "tokens", "text", "catalog", "codecs", "failures"),
    ("view",),
    ("reducers",),
    ("engine", "display"),
    ("recorded", "store", "providers"),
    ("agent", "conversations", "replay", "report", "adapters"),
    ("hosting",),
    ("doors",),
    ("cli", "testing", "", "__main__"),
    ("foldline_bench",),
)
CORE = 4  # these layers have no input, output, clock or chance, and need the standard library only
ORDER = tuple(unit for layer in LAYERS for unit in layer)

IMPURE_MODULES = frozenset(
    "asyncio concurrent ctypes fcntl glob http io logging mmap multiprocessing os pathlib pickle random secrets "
    "importlib select shelve shutil signal smtplib socket sqlite3 ssl subprocess tempfile threading time "
    "urllib.request uuid".split()
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

# Which packages of other people each part may import; the parts that are not here import none. psycopg is nowhere: it
# is SQLAlchemy that loads it, by the URL of a store.
THIRD_PARTY = {
    "store": frozenset("platformdirs sqlalchemy".split()),
    "adapters": frozenset(
        "agent_framework agents google langchain langchain_core langgraph litellm llama_index pydantic "
        "pydantic_ai smolagents strands".split()
    ),
    "providers": frozenset("httpx tiktoken toktok xllamacpp".split()),
    "agent": frozenset("httpx httpx2 mcp pydantic pydantic_core pypdf yaml".split()),
    "hosting": frozenset({"click"}),
    "doors": frozenset(
        "aiohttp apscheduler click httptools httpx mcp opentelemetry prometheus_client prompt_toolkit rich starlette "
        "telegram uvicorn uvloop yarl".split()
    ),
    "cli": frozenset("click rich".split()),
    # Ray and PyArrow where `foldline tune` needs them; most others for the peers alone, each in an environment of its
    # own (bench/tests/peers/).
    "foldline_bench": frozenset(
        "agent_framework aiohttp click cliffcompaction langchain langchain_core langgraph litellm pyarrow pydantic_ai "
        "pydantic_ai_harness ray rich strands".split()
    ),
}

# Where code of other people runs, any error may come out of it, and the proxy passes a request on whatever goes wrong
# in the engine; nowhere else is one caught unnamed and kept.
FOREIGN_CODE = {
    "foldline.engine.events": "calls the listener that a user handed in",
    "foldline.engine.drivers": "calls the summariser that a user handed in",
    "foldline.agent.workers": "whatever work in a thread raises is raised again where it is waited for",
    "foldline.agent.tools.toolbox": "runs tools that a user or an MCP server brought",
    "foldline.adapters.adapter": "calls the model through a framework, whose errors are raised again where they stay",
    "foldline_bench.systems": "runs systems of other people, whose errors are counted as figures of theirs",
    "foldline_bench.promises.targets.callables": "calls tools of other people, whose errors are what is reported",
    "foldline_bench.promises.targets.local": "imports a module of other people, whose errors are told in one line",
    "foldline.doors.proxy.exchange": "a fault of ours costs a client the folding, not the request; it is logged",
}

MAX_MODULE_LINES = 400
LONG_MODULES = {"foldline.view.view": 700, "foldline.engine.engine": 700}
"""Two subjects that read better in one piece."""
MAX_FILES = 20
"""Files of one folder: with more of them a reader no longer sees what is there."""
MAX_FUNCTION_LINES = 60
MAX_PUBLIC_NAMES = 30
MAX_IMPORT_SECONDS = 0.060
"""Of `import foldline`, whose names load on first use; 0.150 without compiled files."""
MAX_LOAD_SECONDS = 0.100
# Of `Context`, the name that loads the most. On a machine that is busy everything takes longer: then the measure is
# what these modules of Python's own take there (about 50 ms on a quiet one; `Context` was 1.7 times that).
YARDSTICK = (
    "asyncio, unittest, xml.dom.minidom, email.message, http.client, argparse, logging.config, multiprocessing.pool, "
    "tarfile, zipfile, pdb, sqlite3, tomllib"
)
MAX_YARDSTICKS = 2.1
VAGUE = frozenset({"manager", "helper", "helpers", "util", "utils", "processor"})
LAZY_IMPORTS = frozenset({"hosting", "doors", "cli", "providers", "foldline_bench"})


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """The trees are 430,000 nodes: the collector would look through those there are again and again as more come."""
    gc.disable()
    yield
    parsed.cache_clear()
    walked.cache_clear()
    gc.enable()


class Module(NamedTuple):
    """One file of the package."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        """What is in it."""
        return parsed(self.path)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax tree, whether it runs or not."""
        return walked(self.path)

    @property
    def unit(self) -> str:
        """Its name in the table of layers."""
        top, _, rest = self.name.partition(".")
        return rest.partition(".")[0] if top == "foldline" else top


@cache
def modules() -> dict[str, Module]:
    found = {}
    for folder in (SRC, ROOT / "bench" / "src"):
        for path in sorted(folder.rglob("*.py")):
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            found[name] = Module(name, path)
    return found


def each_module() -> list[Module]:
    return list(modules().values())


def core_modules() -> list[Module]:
    return [module for module in each_module() if module.unit in set().union(*LAYERS[:CORE])]


Found = TypeVar("Found", bound=Collection[object])


def faulty(rule: Callable[[Module], Found], judged: Iterable[Module]) -> dict[str, Found]:
    """What a rule finds in each module where it finds anything: one pass over the package shows all faults."""
    return {module.name: found for module in judged if (found := rule(module))}


def height_of(module: Module) -> int:
    return ORDER.index(module.unit)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that exist at run time: what stands under `if TYPE_CHECKING` is left out."""
    waiting = [node]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, ast.If) and is_type_checking(child.test):
                yield from child.orelse
                waiting += child.orelse
            else:
                yield child
                waiting.append(child)


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Full names of the imported modules; `from foldline.a import b` is foldline.a.b where that is a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in modules() else base


@cache
def own_imports(module: Module) -> frozenset[str]:
    return frozenset(name for name in imported(running(module.tree)) if name in modules()) - {module.name}


@cache
def all_imports(module: Module) -> frozenset[str]:
    """Where they stand does not matter: in functions, and for the types alone."""
    return frozenset(imported(module.nodes))


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_rules_are_asked_of_the_whole_package() -> None:
    """A list of modules without any would keep every rule."""
    assert {"foldline", "foldline.errors", "foldline.store.session", "foldline.cli.main"} <= modules().keys()
    assert {"errors", "reducers", "engine"} <= {module.unit for module in core_modules()}
    assert {"store", "agent", "cli"}.isdisjoint(module.unit for module in core_modules())


def test_every_module_has_its_place_in_the_table() -> None:
    places = {module.name: ORDER.count(module.unit) for module in each_module()}
    assert {name: count for name, count in places.items() if count != 1} == {}


def test_no_import_goes_upward() -> None:
    def upward(module: Module) -> set[str]:
        return {name for name in own_imports(module) if height_of(modules()[name]) > height_of(module)}

    assert faulty(upward, each_module()) == {}


def test_no_import_cycle() -> None:
    waiting = {module.name: own_imports(module) for module in each_module()}
    while ready := [name for name, needs in waiting.items() if not needs & waiting.keys()]:
        for name in ready:
            del waiting[name]
    assert waiting == {}


def foreign(module: Module) -> set[str]:
    """Packages that are neither of Python's own nor of this project."""
    return (
        {name.split(".")[0] for name in all_imports(module)} - sys.stdlib_module_names - {"foldline", "foldline_bench"}
    )


def test_the_core_uses_the_standard_library_only() -> None:
    assert faulty(foreign, core_modules()) == {}


def test_only_the_packages_of_its_part_are_imported() -> None:
    def out_of_place(module: Module) -> set[str]:
        return foreign(module) - THIRD_PARTY.get(module.unit, frozenset())

    assert faulty(out_of_place, each_module()) == {}


def test_the_core_has_no_input_output_clock_or_chance() -> None:
    def impure(module: Module) -> set[str]:
        found = {name for name in all_imports(module) if {name, name.split(".")[0]} & IMPURE_MODULES}
        for node in module.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                found.add(f"{node.func.id}() in line {node.lineno}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
                found.add(f".{node.func.attr}() in line {node.lineno}")
        return found

    assert faulty(impure, core_modules()) == {}


def test_no_import_hides_in_a_function() -> None:
    def hidden(module: Module) -> set[str]:
        if module.unit in LAZY_IMPORTS:
            return set()
        return {name for function in functions(module) for name in imported(ast.walk(function))}

    assert faulty(hidden, each_module()) == {}


def test_modules_and_functions_stay_short() -> None:
    def long(module: Module) -> dict[str, int]:
        lengths = {f"{f.name} in line {f.lineno}": (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions(module)}
        found = {where: lines for where, lines in lengths.items() if lines > MAX_FUNCTION_LINES}
        lines = module.path.read_text("utf-8").count("\n")
        most = LONG_MODULES.get(module.name, MAX_MODULE_LINES)
        return found | ({"the whole": lines} if lines > most else {})

    assert faulty(long, each_module()) == {}


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent for module in each_module() if (path := module.path).name != "__init__.py")
    assert {str(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


def test_errors_are_caught_by_name() -> None:
    def blind(module: Module) -> list[str]:
        found = []
        for node in module.nodes:
            if not isinstance(node, ast.ExceptHandler) or module.name in FOREIGN_CODE:
                continue
            caught = [node.type] if not isinstance(node.type, ast.Tuple) else node.type.elts
            again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None  # cleans up and raises it again
            if not again and any(
                e is None or (isinstance(e, ast.Name) and e.id in {"Exception", "BaseException"}) for e in caught
            ):
                found.append(f"line {node.lineno}")
        return found

    assert faulty(blind, each_module()) == {}


def names_given(module: Module) -> Iterator[str]:
    yield module.name
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name


def test_names_say_what_a_thing_is() -> None:
    def vague(module: Module) -> set[str]:
        return {name for name in set(names_given(module)) if words_of(name) & VAGUE}

    assert faulty(vague, each_module()) == {}


def test_a_class_name_stands_once() -> None:
    places: dict[str, list[str]] = {}
    for module in each_module():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@cache
def words_of(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name))


def project_texts() -> list[Path]:
    """The texts that belong to the project, generated folders left out."""
    folders = ["src", "tests", "bench", "docs", "examples", "tools", ".ci"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.glob("*") if path.is_file() and path.name != ".git"]  # a file in a linked worktree
    binary = {".gz", ".png", ".gif", ".pyc", ".zip"}
    return sorted(path for path in files if path.suffix not in binary and "__pycache__" not in path.parts)


def test_no_text_names_a_machine_or_a_registry() -> None:
    foreign = re.compile(r"/(?:work|farm|root|home/[a-z]+)/|python[h]osted\.|npm[j]s\.|deb[i]an\.org|//py[p]i\.")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in project_texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if foreign.search(line)
    ]
    assert found == []


def python(code: str, **environment: str) -> str:
    """What `code` prints in an interpreter of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=kept)
    return done.stdout


def test_importing_foldline_loads_no_third_party_module_and_gives_few_names() -> None:
    code = (
        "import sys; before = set(sys.modules); from foldline import *; import foldline; "
        "print(*(set(sys.modules) - before)); print(*foldline.__all__)"
    )
    loaded, names = (line.split() for line in python(code).splitlines())
    roots = {name.split(".")[0] for name in loaded}
    assert {"foldline", "foldline.engine.context"} <= set(loaded)
    assert roots - sys.stdlib_module_names == {"foldline"}
    assert 0 < len(names) <= MAX_PUBLIC_NAMES


def seconds_of(statement: str, folder: Path) -> float:
    """Processor time of an import, by the compiled files in a folder: it has none at the first time."""
    code = f"from time import process_time as now; start = now(); {statement}; print(now() - start)"
    return float(python(code, PYTHONPYCACHEPREFIX=str(folder)))


def test_importing_foldline_is_quick(tmp_path: Path) -> None:
    """As an installed package has it, and without compiled files; of seven times one will do."""
    first = min(seconds_of("import foldline", tmp_path / str(number)) for number in range(7))
    later = min(seconds_of("import foldline", tmp_path / str(number)) for number in range(7))
    assert first < 0.150
    assert later < MAX_IMPORT_SECONDS


def test_the_first_context_loads_quickly(tmp_path: Path) -> None:
    yardstick, ours = f"import {YARDSTICK}", "from foldline import Context"
    seconds_of(f"{ours}; {yardstick}", tmp_path)  # compiles them
    pairs: list[tuple[float, float]] = []
    for _ in range(7):
        pairs.append((seconds_of(ours, tmp_path), seconds_of(yardstick, tmp_path)))
        own, standard = pairs[-1]
        if own < max(MAX_LOAD_SECONDS, MAX_YARDSTICKS * standard):
            return
    pytest.fail(f"{pairs}")


def test_the_picture_is_the_table() -> None:
    """In docs/architecture.md: the layers from the top, each with its folders in the order of imports."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    drawn = [line.split()[1:] for line in page.splitlines() if re.match(r" {4}\d+  ", line)]
    named = [[unit or "foldline" for unit in layer] for layer in reversed(LAYERS)]
    assert [line[: len(units)] for line, units in zip(drawn, named, strict=True)] == named


def test_each_file_that_a_guide_names_is_there() -> None:
    """A path in backquotes stands below the root, below src/foldline or, as a bare name, anywhere."""
    roots = (ROOT, SRC / "foldline", ROOT / "bench" / "src")
    missing = [
        f"{guide}: {name}"
        for guide in ("docs/architecture.md", "CONTRIBUTING.md")
        for name in re.findall(r"`([a-z_./]+\.(?:py|md|toml))`", (ROOT / guide).read_text("utf-8"))
        if not any((root / name).exists() for root in roots)
        and not ("/" not in name and [*SRC.rglob(name), *(ROOT / "bench").rglob(name)])
    ]
    assert missing == []


def test_the_tests_of_a_group_are_run_by_one_worker(request: pytest.FixtureRequest) -> None:
    """By the end of their ids, where pytest-xdist looks for it."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only with several workers and --dist loadgroup")
    assert request.node.nodeid.endswith("@architecture")
