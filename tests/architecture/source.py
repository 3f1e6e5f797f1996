"""The source of the library, read once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import asterism

SOURCE = Path(asterism.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
BLOCKS = ast.stmt | ast.excepthandler | ast.match_case


@cache
def tree(path: Path) -> ast.Module:
    gc.disable()  # a tree is no garbage, and to find this out takes longer than to read all trees
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Of a node, the statements directly inside it, and the blocks that have some, but no expressions."""
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, BLOCKS))


def all_statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in statements(node):
        yield child
        yield from all_statements(child)
