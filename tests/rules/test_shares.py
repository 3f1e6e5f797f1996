"""The cache of what processors see."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from asterism.columns.time import TimeColumn
from asterism.patterns.semantics import Semantics
from asterism.rules.binding import ProcessorCompiler
from asterism.rules.shares import MAX_SETS, Shares
from tests.rules.driver import SCHEMA, chain, processor


def test_a_cached_set_belongs_to_living_processors() -> None:
    """It is found by the identities of its processors, which Python gives to other objects once they are collected."""
    compiler = ProcessorCompiler(SCHEMA, (), TimeColumn("ts", pa.timestamp("us", "UTC")), Semantics.DEFAULT, {})
    two = [compiler.compile(processor("p", version, chain("a", "b", within=version))) for version in (1, 2)]
    for number in range(MAX_SETS):
        bound = replace(two[number % 2])
        assert Shares.of([bound]).matcher.patterns[0] is bound.pattern
        del bound
