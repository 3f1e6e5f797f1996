"""The sizes that keep the source readable: functions, their parameters, and folders. Ruff limits the complexity of functions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import FILES, SOURCE, all_statements, tree

MAX_PARAMETERS, MAX_CONSTRUCTOR_PARAMETERS = 8, 10
"""Without ``*names`` and ``**names``."""
MORE_PARAMETERS = {"statements.py": {"sql": 10}, "sql.py": {"sql": 10}, "pattern_stream.py": {"run": 10}}
"""The tables of ``sql`` take the place of ``**options``; ``run`` has the contents of outputs, and how a query starts."""
MAX_LINES = 60
"""Of a function, without its docstring. The loops of compiled modules may be longer."""
MAX_COMPLEXITY_OF_KERNELS = 30
MAX_FILES = 20
"""In a folder."""
KERNELS = {path for name in ("*kernels.py", "stack_machine.py") for path in SOURCE.rglob(name)}
VAGUE_NAMES, MAX_VAGUE_NAMES = {"found", "one", "own", "mine"}, 100
"""Names of variables that do not say what they hold."""


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in FILES:
        for node in all_statements(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def described(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef, size: int) -> str:
    return f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}: {size}"


def test_parameters() -> None:
    long = []
    for path, node in functions():
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(name.arg not in ("self", "cls") for name in names)
        more = MORE_PARAMETERS.get(path.name, {}) | {"__init__": MAX_CONSTRUCTOR_PARAMETERS}
        if count > more.get(node.name, MAX_PARAMETERS):
            long.append(described(path, node, count))
    assert long == []


def test_lines_of_functions() -> None:
    long = []
    for path, node in functions():
        first = node.body[0]
        docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) and first.end_lineno else 0
        lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring
        if lines > MAX_LINES and path not in KERNELS:
            long.append(described(path, node, lines))
    assert long == []


def test_complexity_of_kernels() -> None:
    limit = f"lint.mccabe.max-complexity={MAX_COMPLEXITY_OF_KERNELS}"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--config", limit]
    checked = subprocess.run([*command, *map(str, sorted(KERNELS))], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_files_of_folders() -> None:
    counts = Counter(path.parent for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    large = {str(folder.relative_to(SOURCE)): count for folder, count in counts.items() if count > MAX_FILES}
    assert {folder: count for folder, count in large.items() if not folder.endswith("__pycache__")} == {}


def test_names_of_variables() -> None:
    vague: Counter[Path] = Counter()
    any_of_them = re.compile(rf"\b({'|'.join(VAGUE_NAMES)})\b")
    for path in FILES:
        for node in ast.walk(tree(path)) if any_of_them.search(path.read_text(encoding="utf-8")) else ():
            assigned = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES
            if assigned or (isinstance(node, ast.arg) and node.arg in VAGUE_NAMES):
                vague[path.relative_to(SOURCE)] += 1
    assert vague.total() < MAX_VAGUE_NAMES, vague.most_common()
