"""Who may import whom. ``import asterism`` must stay quick, and the engine must not know Spark."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import asterism

SOURCE = Path(asterism.__file__).parent

# Each module imports from its own block or one above.
BLOCKS: tuple[tuple[str, ...], ...] = (
    ("errors", "arguments", "durable"),
    ("pattern", "conditions", "sql", "expressions", "programs", "words", "surprises"),
    ("nfa", "compiler", "kernels", "explain", "drawing"),
    ("state", "operator", "key_group", "schemas", "keyed_state", "stream_operator", "keys", "hashing"),
    ("calls", "matcher", "match_ids", "outputs", "aggregates"),
    ("cep", "multiple_input", "probe", "follower", "trace", "broadcast"),
    ("wall_clock", "windows", "triggers", "trigger_plan", "trigger_kernels"),
    ("window_answers", "own_triggers", "window_contents", "window_call", "window_operator", "window_drawing"),
    ("json_text", "json_format", "match_recognize"),
    (
        "processors",
        "kill_list",
        "processor_sets",
        "used_versions",
        "bound_processors",
        "copies",
        "set_kernels",
        "matcher_set",
    ),
    ("discovery_status", "dynamic_cep", "discovery", "coordinator"),
    ("conformance", "files", "validation", "spark"),
    ("testing", "metrics", "terminal", "rules_cli", "cli", "__main__"),
)
LEVEL = {module: level for level, block in enumerate(BLOCKS) for module in block}
HAND_OVER = {"pattern": {"explain", "drawing", "json_format"}, "triggers": {"window_drawing"}}
"""What is below, but has methods above: they import it when they are called."""
MAY_MEET_SPARK = {"spark", "__init__", "cli", "conformance"}
HEAVY = {"pyspark", "numba", "matplotlib"}
"""Imported at module level only by the module that is made of it, itself imported late."""
COMPILED = ("kernels", "set_kernels", "trigger_kernels", "hashing")
MADE_OF = {"spark": {"pyspark"}, **{module: {"numba"} for module in COMPILED}}

FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    """The name in the layout: everything in a folder counts as the folder."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(what is imported, is that done when the module is), apart from what only type checkers see."""

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Import(names=names):
                yield from ((name.name, at_once) for name in names)
            case ast.ImportFrom(module=module, names=names) if module == "asterism":
                yield from ((f"asterism.{name.name}", at_once) for name in names)
            case ast.ImportFrom(module=module):
                yield module or "", at_once
        inside = at_once and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), True)


def own_imports(path: Path, *, at_once: bool = False) -> set[str]:
    """The modules of this package that a file imports; only those that it imports when it is, if *at_once*."""
    names = {name.split(".")[1] for name, now in imports(path) if name.startswith("asterism.") and now >= at_once}
    return names & (LEVEL.keys() | {file.stem for file in FILES})


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


def test_import_asterism_imports_neither_spark_nor_numba() -> None:
    """Nor anything else that takes long."""
    program = f"import sys, asterism; print(sorted({HEAVY | {'duckdb', 'pandas'}!r} & set(sys.modules)))"
    assert run_python(program) == "[]"


def test_a_pattern_can_be_matched_without_spark() -> None:
    program = (
        "import sys, pyarrow as pa; from asterism import Pattern; from asterism.cep import CepOperator;"
        "from asterism.outputs import OutputKind, OutputSpec; from asterism.state import MemoryStore;"
        "from asterism.operator import Arrival, Now;"
        "operator = CepOperator(Pattern.begin('a').where('ts > 0'), pa.schema([('ts', pa.int64())]), time='ts',"
        " outputs={'m': OutputSpec(OutputKind.MATCHES)});"
        "operator.process(MemoryStore(), [Arrival('events', operator.prepare('events', pa.table({'ts': [1]})))], Now());"
        "print('pyspark' in sys.modules)"
    )
    assert run_python(program) == "False"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_import_upwards_only(path: Path) -> None:
    """From their own block of the layout, or one above."""
    module = module_of(path)
    if module == "__init__":
        return
    assert module in LEVEL, f"{module} has no place in the layout"
    below = {name for name in own_imports(path) if LEVEL[name] > LEVEL[module]}
    assert below <= HAND_OVER.get(module, set())
    assert below & own_imports(path, at_once=True) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_one_folder_meets_spark(path: Path) -> None:
    """The others import neither pyspark nor that folder; the front doors do so when they are asked to."""
    module = module_of(path)
    spark = [at_once for name, at_once in imports(path) if name.startswith(("pyspark", "asterism.spark"))]
    if module not in MAY_MEET_SPARK:
        assert spark == []
    elif module != "spark":
        assert True not in spark


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_are_imported_late(path: Path) -> None:
    at_once = {name.split(".")[0] for name, at_once in imports(path) if at_once}
    assert at_once & HEAVY <= MADE_OF.get(module_of(path), set())
    kernels = {"kernels", "trigger_kernels"}
    if module_of(path) not in kernels:
        assert not {f"asterism.{name}" for name in kernels} & {name for name, now in imports(path) if now}
