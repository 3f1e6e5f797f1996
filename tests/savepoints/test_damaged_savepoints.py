"""Savepoints that are damaged, incomplete, foreign or hostile: each is an error with the place, before anything is written."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    PatternProcessor,
    match_recognize,
)
from asterism.cli.main import main
from asterism.errors import NewerStateError, StateError
from asterism.live.snapshots import is_live_folder
from asterism.live.takeover import create_live_savepoint, restore_live_savepoint
from asterism.operators.state.state_store import Record, record_of
from asterism.savepoints import stored_tables
from asterism.savepoints.manifest import MANIFEST, MAX_SIZE, ROWS, SEAM, StoredSeam
from asterism.savepoints.rule_sets import RULES
from asterism.spark.savepoints.restoring import StoredSavepoint
from tests.savepoints.kit import folder_of

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("kind", pa.string())])
PATTERN = (
    Pattern.begin("a").where("kind = 'a'").followed_by_any("b").where("kind = 'b'").followed_by("c").where("kind = 'c'")
)
CLAUSE = (
    "PARTITION BY user ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B+ C) "
    "DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'"
)


REMEMBERS = (
    Pattern.begin("a").where("kind = 'a' AND PREV(kind) IS NULL").followed_by("b").where("kind = 'b'").followed_by("c")
    .where("kind = 'c'")
)  # fmt: skip


def opened(kind: str, folder: Path) -> Any:
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
    if kind == "rules":
        rules = [
            PatternProcessor("short", 1, Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'x'")),
            PatternProcessor("long", 1, PATTERN.within(timedelta(hours=1))),
            PatternProcessor("remembers", 1, REMEMBERS.within(timedelta(hours=1))),
        ]
        file = folder.with_name("rules.json")
        file.write_text(json.dumps([rule.to_dict() for rule in rules]))
        return CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(file)).open(folder)
    if kind == "clause":
        return match_recognize(SCHEMA, CLAUSE).open(folder)
    return CEP.pattern(stream, PATTERN.within(timedelta(hours=1))).open(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Savepoints of a pattern, a clause and rules, with partial matches and events that wait, as earlier releases have written
    them: without the sizes and checksums of their files.
    """
    savepoints = {}
    for kind in ("pattern", "clause", "rules"):
        folder = tmp_path_factory.mktemp(kind)
        with opened(kind, folder / "live") as engine:
            for second, name in enumerate("aabbab"):
                row = {"ts": datetime.fromtimestamp(second, UTC), "user": "ann" if second % 3 else "bob", "kind": name}
                engine.process([row], watermark=datetime.fromtimestamp(second - 1, UTC))
        create_live_savepoint(folder / "live", folder / "savepoint")
        document = json.loads((folder / "savepoint" / MANIFEST).read_text())
        assert document.pop("files")
        (folder / "savepoint" / MANIFEST).write_text(json.dumps(document))
        savepoints[kind] = folder / "savepoint"
    return savepoints


def errors_of(savepoint: Path, place: Path) -> list[StateError]:
    """Of all that reads a savepoint without Spark, or before Spark does."""
    errors = []
    is_restored = False
    for read in (
        lambda: StoredSavepoint.of(folder_of(savepoint)),
        lambda: restore_live_savepoint(savepoint, place),
    ):
        try:
            read()
            is_restored = True
        except StateError as error:
            is_restored = False
            errors.append(error)
    assert is_live_folder(place) == is_restored
    return errors


def changed(savepoint: Path, **changes: Any) -> None:
    """Other fields of the manifest; ``PART__NAME`` is that of a part."""
    document = json.loads((savepoint / MANIFEST).read_text())
    for path, value in changes.items():
        *parents, name = path.split("__")
        part = document
        for parent in parents:
            part = part[parent]
        part[name] = value
    (savepoint / MANIFEST).write_text(json.dumps(document))


def definition_of(text: bytes) -> str:
    return base64.b64encode(record_of(Record.DEFINITION, zlib.compress(text))).decode()


def bomb() -> str:
    return definition_of(b'{"kind": "' + b"x" * (MAX_SIZE + 1) + b'"}')


UPSTREAM = {"folder": "operator-1", "time_mode": "None", "key_groups": 1, "counts": {}, "operator": None}
MANIFESTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (lambda p: (p / MANIFEST).write_text((p / MANIFEST).read_text()[:-40]), "manifest.json: "),
    "half-written": (lambda p: (p / MANIFEST).unlink(), "It has no manifest.json."),
    "binary": (lambda p: (p / MANIFEST).write_bytes(b"\xff\xfe\x00"), "not text"),
    "deep": (lambda p: (p / MANIFEST).write_text("[" * 100_000), "manifest.json: "),
    "a list": (lambda p: (p / MANIFEST).write_text("[]"), "manifest.json: "),
    "newer": (lambda p: changed(p, format=99, asterism="7.0"), "format 99"),
    "no format": (lambda p: changed(p, format="2"), "format is '2'"),
    "too many key groups": (lambda p: changed(p, key_groups=10**9), "key_groups is 1000000000"),
    "no key groups": (lambda p: changed(p, key_groups=0), "key_groups is 0"),
    "a truth": (lambda p: changed(p, tasks=True), "tasks is True"),
    "a folder beside it": (lambda p: changed(p, upstream=[UPSTREAM | {"folder": "../carts"}]), "folder is '../carts'"),
    "a table beside it": (lambda p: changed(p, counts={"../keys": 1}), "counts is '../keys'"),
    "an absolute table": (lambda p: changed(p, counts={"/etc": 1}), "counts is '/etc'"),
    "a negative count": (lambda p: changed(p, counts={"keys": -1}), "counts of keys is -1"),
    "no time": (lambda p: changed(p, created="yesterday"), "yesterday"),
    "no position": (lambda p: changed(p, query__batch_id=None), "batch_id is None"),
    "no log": (lambda p: changed(p, query__offsets=["v1", "{", "{}"], query__commit=["v1", "{}"]), ""),
    "no commit log": (lambda p: changed(p, query__commit=["v1", "-"]), "the logs of Spark cannot be read"),
    "lines that are numbers": (lambda p: changed(p, query__offsets=[1]), "offsets is 1"),
    "pages": (lambda p: changed(p, operator__pages=2**40), "pages is 1099511627776"),
    "a watermark": (lambda p: changed(p, operator__watermark=2**70), "a watermark is not a number"),
    "a fingerprint": (lambda p: changed(p, operator__fingerprint="zz"), "manifest.json: "),
    "a definition": (lambda p: changed(p, operator__definition="AAAA"), "was not written by this operator"),
    "a compressed bomb": (lambda p: changed(p, operator__definition=bomb()), "truncated, or larger than"),
    "another kind": (lambda p: changed(p, operator__definition=definition_of(b'{"kind": "toaster"}')), "manifest.json: "),
    "no details": (
        lambda p: changed(p, operator__definition=definition_of(
            b'{"kind": "row pattern", "keys": "", "tables": {}, "inputs": {}, "details": {}}')), "manifest.json: "),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    damage, text = MANIFESTS[name]
    savepoint = tmp_path / "savepoint"
    shutil.copytree(made["pattern"], savepoint)
    damage(savepoint)
    errors = errors_of(savepoint, tmp_path / "live")
    if name == "no log":  # read by Spark only: an unknown line is the offset of an unknown source
        return
    shown = CliRunner().invoke(main, ["savepoint", "show", str(savepoint)])
    assert [text in str(error) for error in errors] == [True, True], errors
    assert all(str(savepoint) in str(error) for error in errors)
    assert (shown.exit_code, "Traceback" in shown.output) == (2, False)
    assert all(isinstance(error, NewerStateError) == (name == "newer") for error in errors)


def keys_of(savepoint: Path) -> Path:
    return next((savepoint / ROWS).glob("*.parquet"))


def rewritten(savepoint: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(keys_of(savepoint))), keys_of(savepoint))


def test_the_end_of_a_file_is_enough(tmp_path: Path) -> None:
    """Also if it has so many columns that its end is larger than what is read at first."""
    columns = {f"a rather long name of a column {number}": [1, 2, 3] for number in range(2_000)}
    path = str(tmp_path / "wide.parquet")
    pq.write_table(pa.table(columns), path)
    metadata, schema = stored_tables._footer(fs.LocalFileSystem(), path)
    assert (metadata.num_rows, len(schema), metadata.serialized_size > 2**16) == (3, 2_000, True)


def without(name: str) -> Callable[[Path], None]:
    return lambda savepoint: rewritten(savepoint, lambda rows: rows.drop_columns([name]))


TABLES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no file": (lambda p: keys_of(p).unlink(), "keys has 0 rows in 0 files, and the manifest says 2."),
    "no folder": (lambda p: shutil.rmtree(p / ROWS), "keys has 0 rows in 0 files"),
    "rows are missing": (lambda p: rewritten(p, lambda rows: rows.slice(1)), "keys has 1 rows in 1 files"),
    "rows twice": (lambda p: rewritten(p, lambda rows: pa.concat_tables([rows, rows])), "keys has 4 rows"),
    "truncated": (lambda p: keys_of(p).write_bytes(keys_of(p).read_bytes()[:-30]), "does not end as a Parquet file"),
    "empty": (lambda p: keys_of(p).write_bytes(b""), "does not end as a Parquet file"),
    "foreign": (lambda p: keys_of(p).write_bytes(b"key,state\n1,2\n" * 9), "does not end as a Parquet file"),
    "a false footer": (lambda p: keys_of(p).write_bytes(b"PAR1" + b"\x15" * 40 + b"\x28\x00\x00\x00PAR1"), "cannot be read"),
    "a huge footer": (lambda p: keys_of(p).write_bytes(b"PAR1" * 4 + b"\xff\xff\xff\x7fPAR1"), "does not end as a Parquet file"),
    "no state": (without("state"), 'it has no column "state"'),
    "no hash": (without("key_hash"), 'it has no column "key_hash"'),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    damage, text = TABLES[name]
    savepoint = tmp_path / "savepoint"
    shutil.copytree(made["pattern"], savepoint)
    damage(savepoint)
    errors = errors_of(savepoint, tmp_path / "live")
    assert [text in str(error) for error in errors] == [True, True], errors
    assert all(f"{savepoint}" in str(error) and "create the savepoint again" in str(error) for error in errors)


def test_what_becomes_too_large_is_not_read(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a file that is small as it is stored."""
    savepoint = tmp_path / "savepoint"
    shutil.copytree(made["pattern"], savepoint)
    monkeypatch.setattr(stored_tables, "MAX_PART", 10)
    for error in errors_of(savepoint, tmp_path / "live"):
        assert "bytes without compression, at most 10 are read at once" in str(error)


@pytest.mark.parametrize("name", [SEAM, RULES])
def test_other_files(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    """``until`` is read by Spark only."""
    texts = [b"[", b"[" * 50_000, b"\xff", b"[]", b'{"positions": 3}', b'{"until": "now"}', b'{"until": 1e99}']
    for number, text in enumerate(texts):
        savepoint = tmp_path / f"savepoint-{number}"
        shutil.copytree(made["pattern"], savepoint)
        (savepoint / name).write_bytes(text)
        with pytest.raises(StateError, match=str(savepoint)):
            restore_live_savepoint(savepoint, tmp_path / "live")
        if name == SEAM and text != b"\xff":
            with pytest.raises(StateError, match=f"{savepoint}/{SEAM} cannot be read"):
                StoredSeam.from_json(text.decode(), str(savepoint))


def set_number(rows: pa.Table, of_list: str | None, name: str, value: int) -> pa.Table:
    """The state with another number in the first row that has one, of rules in the last one: that of "remembers"."""
    states = rows.column("state").to_pylist()
    for state in states:
        parts = [state["search"]] if of_list is None else state[of_list]
        of_rule = [part for part in parts if not part.get("rule")]  # the start state is the last one
        if of_rule:
            of_rule[0][name] = value
            break
    at = rows.column_names.index("state")
    return rows.set_column(at, "state", pa.array(states, rows.schema.field("state").type))


@pytest.mark.parametrize(
    ("kind", "of_list", "name", "value"),
    [
        ("pattern", "nodes", "event", 10**6),
        ("pattern", "nodes", "event", -1),
        ("pattern", "nodes", "stage", 3),
        ("pattern", "nodes", "parent", 10**6),
        ("pattern", "nodes", "parent", -2),
        ("pattern", "partial_matches", "event", -5),
        ("pattern", "partial_matches", "event", 2**40),
        ("pattern", "partial_matches", "node", 10**6),
        ("pattern", "partial_matches", "state", 10**6),
        ("pattern", "partial_matches", "state", -1),
        ("pattern", "partial_matches", "node", -2),
        ("rules", "nodes", "event", 10**6),
        ("rules", "nodes", "stage", 3),
        ("rules", "nodes", "parent", 10**6),
        ("rules", "partial_matches", "rule", 3),
        ("rules", "partial_matches", "event", 2**40),
        ("rules", "partial_matches", "node", 10**6),
        ("rules", "partial_matches", "state", 10**6),
        ("rules", "partial_matches", "state", -9),
        ("clause", None, "p:rows", 10**6),
        ("clause", None, "p:next_start", 10**6),
        ("clause", None, "p:covered", -1),
    ],
)
def test_a_number_that_refers_to_nothing(
    kind: str, of_list: str | None, name: str, value: int, made: dict[str, Path], tmp_path: Path
) -> None:
    savepoint = tmp_path / "savepoint"
    shutil.copytree(made[kind], savepoint)
    rewritten(savepoint, lambda rows: set_number(rows, of_list, name, value))
    with pytest.raises(StateError, match=f"It refers to {name.removeprefix('p:')} {value}, which is not there"):
        restore_live_savepoint(savepoint, tmp_path / "live")


def test_a_node_that_is_its_own_ancestor(made: dict[str, Path], tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    shutil.copytree(made["pattern"], savepoint)

    def cycle(rows: pa.Table) -> pa.Table:
        states = rows.column("state").to_pylist()
        for state in states:
            for place, node in enumerate(state["nodes"]):
                node["parent"] = (place + 1) % len(state["nodes"])
        at = rows.column_names.index("state")
        return rows.set_column(at, "state", pa.array(states, rows.schema.field("state").type))

    rewritten(savepoint, cycle)
    with pytest.raises(StateError, match="a node is its own ancestor"):
        restore_live_savepoint(savepoint, tmp_path / "live")


def test_columns_of_other_types(made: dict[str, Path], tmp_path: Path) -> None:
    for name, values in (("state", [1, 2]), ("key", ["ann", "bob"]), ("key_hash", ["x", "y"])):
        savepoint = tmp_path / f"savepoint-{name}"
        shutil.copytree(made["pattern"], savepoint)
        at = pq.read_table(keys_of(savepoint)).column_names.index(name)
        rewritten(savepoint, lambda rows, at=at, name=name, values=values: rows.set_column(at, name, pa.array(values)))  # type: ignore[misc]
        with pytest.raises(StateError, match=f"the savepoint {savepoint} cannot be read"):
            restore_live_savepoint(savepoint, tmp_path / "live")


def test_whole_ones_are_read(made: dict[str, Path], tmp_path: Path) -> None:
    for kind, savepoint in made.items():
        assert errors_of(savepoint, tmp_path / kind) == []
        with opened(kind, tmp_path / kind) as engine:
            row = {"ts": datetime.fromtimestamp(9, UTC), "user": "ann", "kind": "c"}
            assert sum(table.num_rows for table in engine.process([row]).values()) == 0
            assert sum(table.num_rows for table in engine.finish().values())
