"""Who may import whom. ``import asterism`` must stay quick, and the engine must not know Spark."""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import re
import subprocess
import sys
import typing
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import asterism
from tests.architecture import source
from tests.architecture.source import SOURCE, statements, tree

ORDER = [
    "errors", "spelling", "arguments", "caches", "loading", "text", "files", "columns", "expressions", "operators", "windows",
    "joins", "patterns", "matching", "changes", "row_patterns", "sigma", "elastic", "rules", "savepoints", "http", "discovery",
    "metrics", "sinks", "sources", "trace", "live", "streams", "embedded", "spark", "cep", "testing", "console", "conformance",
    "cli", "__main__",
]  # fmt: skip
"""The packages (and modules beside them) from bottom to top: each imports only from those before it, at any moment."""
LEVEL = {package: level for level, package in enumerate(ORDER)}
ORDER_INSIDE = {
    "operators": ["state"],
    "row_patterns": ["clause"],
    "rules": ["definition", "sets", "binding", "matching", "checking", "publishing"],
    "savepoints": ["rows"],
    "discovery": ["sources", "editing", "rest"],
    "spark": ["session", "host", "histories", "progress", "savepoints", "rules", "api", "watching"],
    "cli": ["common", "rules"],
}
"""Likewise the packages inside a package. The modules beside them come last."""
MAY_MEET_SPARK = {"spark", "streams", "cep", "sinks", "sources", "conformance", "cli"}
HEAVY = {"pyspark", "numba"}
"""Imported at module level only by the modules that are made of it, themselves imported late."""
COMPILED = {
    "matching.kernels", "rules.binding.kernels", "rules.binding.text_kernels", "windows.kernels", "row_patterns.kernels",
    "expressions.kernels", "matching.stack_machine", "columns.compiled", "columns.hashing", "windows.firing",
    "row_patterns.match_conditions", "row_patterns.match_items", "row_patterns.search", "row_patterns.result_rows",
}  # fmt: skip

FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in source.FILES
}
"""By name, without ``asterism.``."""
MODULES = sorted(FILES.keys() - {""})


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(what is imported, is that done when the module is); what only type checkers see is not."""

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                at_once = False
            case ast.Import(names=names):
                yield from ((name.name, at_once) for name in names)
            case ast.ImportFrom(module=str() as module, names=names):
                yield from ((f"{module}.{name.name}", at_once) for name in names)
        inside = at_once and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in statements(node):
            yield from visit(child, inside)

    return list(visit(tree(path), True))


def own_imports(module: str, *, at_once: bool = False) -> Iterator[tuple[str, str]]:
    """(module, name) of this project that *module* imports; only those that it imports when it is, if *at_once*."""
    for name, now in imports(FILES[module]):
        if name.startswith("asterism.") and now >= at_once:
            whole = name.removeprefix("asterism.")
            part, _, last = whole.rpartition(".")
            yield (whole, "") if whole in FILES else (part, last)


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()


def test_import_asterism_imports_neither_spark_nor_numba() -> None:
    """Nor anything else that takes long."""
    program = f"import sys, asterism; print(sorted({HEAVY | {'duckdb', 'pandas'}!r} & set(sys.modules)))"
    assert run_python(program) == "[]"


def test_a_query_of_patterns_imports_little() -> None:
    """Before it starts; pyarrow imports pandas later."""
    late = ["duckdb", "numba", "pandas", "sqlalchemy"]
    program = (
        f"import sys; from asterism import CEP, KeyedStream, Pattern; print(sorted({{*{late}}} & set(sys.modules)))"
    )
    assert run_python(program) == "[]"


def test_import_asterism_sets_the_interpreter_of_a_session() -> None:
    program = "import os; os.environ.pop('PYSPARK_PYTHON', None); import asterism; print(os.environ['PYSPARK_PYTHON'])"
    assert run_python(program) == sys.executable


def test_packages_import_from_those_below() -> None:
    packages = {module.split(".")[0] for module in MODULES}
    assert packages <= LEVEL.keys(), f"no place in the layout: {sorted(packages - LEVEL.keys())}"
    above = {
        f"{module} imports {name}"
        for module in MODULES
        for name, _ in own_imports(module)
        if name and LEVEL[name.split(".")[0]] > LEVEL[module.split(".")[0]]
    }
    assert above == set()


def test_packages_inside_a_package_import_from_those_below() -> None:
    def level(module: str) -> int:
        package, inside = module.split(".")[:2]
        order = ORDER_INSIDE[package]
        return order.index(inside) if inside in order else len(order)

    inside = {tuple(module.split(".")[:2]) for module in MODULES if module.count(".") == 2}
    known = {(package, name) for package, names in ORDER_INSIDE.items() for name in names}
    beside = {
        ("expressions", "aggregates"),
        ("expressions", "functions"),
        ("expressions", "routines"),
        ("savepoints", "changes"),
        ("spark", "startup"),
    }
    assert inside - known == beside, "no place in the layout"
    above = {
        f"{module} imports {name}"
        for module in MODULES
        for name, _ in own_imports(module)
        if module.count(".") and name.count(".") and name.split(".")[0] == module.split(".")[0] in ORDER_INSIDE
        if level(name) > level(module)
    }
    assert above == set()


def test_the_product_imports_nothing_from_tests() -> None:
    """Nor does it change where imports come from, except in Spark's processes, where Spark does so."""
    foreign = {
        f"{module} imports {name}"
        for module in MODULES
        for name, _ in imports(FILES[module])
        if name.split(".")[0] in ("tests", "benchmarks")
    }
    assert foreign == set()
    changing = {module for module in MODULES if "sys.path" in FILES[module].read_text(encoding="utf-8")}
    assert changing <= {"spark.startup.sitecustomize"}


def test_there_is_no_circle_between_files() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module in FILES.keys() - {""}:
        graph[module] |= {name for name, _ in own_imports(module)} - {module, ""}
    for script in (SOURCE / "console/page").glob("*.js"):
        graph[script.name] |= set(
            re.findall(r'^import .* from "\./(.*)";$', script.read_text(encoding="utf-8"), re.MULTILINE)
        )
    assert graph["app.js"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_no_private_name_crosses_files() -> None:
    crossing = {
        f"{module} imports {name}" for module in MODULES for _, name in own_imports(module) if name.startswith("_")
    }
    assert crossing == set()


def test_only_one_package_meets_spark() -> None:
    """The others import neither pyspark nor that package; the front doors do so when they are asked to."""
    meeting = {
        f"{module} imports {name}{' at module level' if at_once else ''}"
        for module in MODULES
        for name, at_once in imports(FILES[module])
        if name.startswith(("pyspark", "asterism.spark"))
        and (at_once or module.split(".")[0] not in MAY_MEET_SPARK)
        and module.split(".")[0] != "spark"
        and module != "conformance.on_spark"
    }
    assert meeting == set()


def test_heavy_packages_are_imported_late() -> None:
    early = set()
    for module in MODULES:
        made_of = {"numba"} if module in COMPILED else {"pyspark"}
        at_once = {name.split(".")[0] for name, now in imports(FILES[module]) if now} & HEAVY - made_of
        if module not in COMPILED:
            at_once |= COMPILED & {name for name, _ in own_imports(module, at_once=True)}
        early |= {f"{module} imports {name}" for name in at_once}
    assert early == set()


def test_class_names_are_unique() -> None:
    """A name that is searched for is found in one place; a leading underscore does not count."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in FILES.items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_a_star_import_replaces_no_name_of_typing() -> None:
    """Except for Pattern, which is what the library is about. The names are public nevertheless."""
    taken = {*typing.__all__, *collections.__all__, *collections.abc.__all__, *dir(builtins)}
    assert set(asterism.__all__) & taken == {"Pattern"}
    assert set(dir(asterism)) - set(asterism.__all__) == {"Any", "Counter", "Sequence"}
    assert all(getattr(asterism, name).__module__.startswith("asterism.") for name in ("Any", "Counter", "Sequence"))
