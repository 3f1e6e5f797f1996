"""What the Python side of a stream costs, without Spark: ``python -m benchmarks.profile_path --size S --workload W2``.

Drives what Spark's workers run, over the same data: the pack stage (conditions, one chunk per key group) and the stateful
stage (chunks, state and watermark of one key group a call), with the state in a dictionary. Prints CPU time per event and the
number of Python function calls per event; far below one of these says that no Python object is made for an event.

With ``--clause``, W1 to W3 are MATCH_RECOGNIZE: ``match_table`` over the whole table is then measured, too.

With ``--workload W6 --rules 1,100,1000`` it drives so many pattern processors, in a new process each, and prints one JSON line
per number, which also has the time to read and bind them, and their memory.
"""

from __future__ import annotations

import cProfile
import gc
import io
import json
import os
import pstats
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.row_patterns import checking
from asterism.row_patterns.clause import reading
from asterism.row_patterns.current_row import WORDS
from asterism.row_patterns.operator import RowPatternOperator
from asterism.row_patterns.result_rows import match_table
from asterism.rules.binding.binding import BoundPatternProcessor
from asterism.rules.definition.lookup_tables import LookupVersion
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.selections import Selections
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.sets import ProcessorSet
from asterism.spark.host.exchange import pack, results
from asterism.spark.host.partitioning import label
from benchmarks import harness, rules
from benchmarks.gen_data import SIZES
from benchmarks.workloads import DISORDER, KEY, TIME, TIMESTAMP, WORKLOADS, Workload

KEY_GROUPS = 32
OUTPUT = OutputKind.MATCHES.value
STAGE_NAMES = ("pack", "process")

Chunks = dict[int, list[tuple[int | None, bytes | None]]]
Results = list[bytes]


class Stages:
    """The stages, and what they were given and gave.

    :param kinds: what Spark lets through; None: everything
    :param first: what arrives before the events
    """

    def __init__(self, operator: KeyGroupOperator, kinds: Sequence[str] | None, first: Sequence[Arrival] = ()) -> None:
        self.operator, self.kinds, self.first = operator, kinds, list(first)
        self.stores = {label(group): MemoryStore() for group in range(KEY_GROUPS)}
        self.calls = 0

    @classmethod
    def of_workload(cls, workload: Workload, schema: pa.Schema) -> Stages:
        outputs = {OUTPUT: OutputSpec(OutputKind.MATCHES, measures=workload.measures)}
        return cls(CepOperator(workload.pattern, schema, keys=[KEY], time=TIME, outputs=outputs), workload.kinds)

    @classmethod
    def of_clause(cls, workload: Workload, schema: pa.Schema) -> Stages:
        operator = RowPatternOperator(_checked(workload, schema), schema)
        return cls(operator, workload.kinds if operator.current_row.has_neutral else None)

    @classmethod
    def of_rules(cls, only: OneSet, schema: pa.Schema) -> Stages:
        operator = DynamicCepOperator(schema, only, RuleOptions(keys=[KEY], time=TIME))
        return cls(operator, None, [Arrival(PROCESSORS, prepared_set(only.stored))])

    def relevant(self, events: pa.Table) -> pa.RecordBatch:
        """What Spark does: the filter, the bits of conditions, and the hash of the key."""
        if self.kinds is not None:
            events = events.filter(pc.is_in(events.column("kind"), pa.array(self.kinds)))
        names, bits = self._passed_on()
        mixed = events.column(KEY).to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        needed = events.select(names).append_column(KEY_HASH, pa.array(mixed.view(np.int64)))
        if bits:
            prepared = self.operator.prepare(EVENTS, events)
            for name in bits:
                needed = needed.append_column(name, prepared.column(name))
        return needed.combine_chunks().to_batches()[0]

    def _passed_on(self) -> tuple[list[str], list[str]]:
        """The columns of the events that Spark passes on, and those that it computes."""
        operator = self.operator
        if isinstance(operator, RowPatternOperator) and operator.current_row.words_sql is not None:
            return operator.columns_beside_words, [WORDS]
        if isinstance(operator, CepOperator) and operator.pattern.bits_sql is not None:
            return operator.columns_beside_bits, [field.name for field in operator.pattern.bit_fields]
        return operator.inputs[EVENTS].schema.names, []

    def pack(self, events: pa.RecordBatch, chunks: Chunks) -> None:
        delay = DISORDER // timedelta(microseconds=1)
        for packed in pack(self.operator, KEY_GROUPS, EVENTS, delay)(iter([events])):
            columns = (packed.column(name).to_pylist() for name in ("key_group", "watermark", "chunk"))
            for group, watermark, chunk in zip(*columns, strict=True):
                chunks[group].append((watermark, chunk))

    def process(self, chunks: Chunks, watermark: int, found: Results) -> None:
        schema = self.operator.inputs[EVENTS].prepared
        for group, store in self.stores.items():
            arrivals = [
                Arrival(
                    EVENTS,
                    None if chunk is None else batch_from_bytes(chunk, schema),
                    BEFORE_TIME if latest is None else latest,
                )
                for latest, chunk in chunks.get(group, [])
            ]
            arrivals = [*(self.first if store.read_header() is None else ()), *arrivals]
            result = self.operator.process(store, arrivals, Now(watermark))
            found += [chunk for _, chunk in results(result.outputs)]
            self.calls += 1


def _checked(workload: Workload, schema: pa.Schema) -> checking.CheckedClause:
    if workload.clause is None:
        raise SystemExit(f"{workload.name} has no form as MATCH_RECOGNIZE")
    return checking.check(reading.read(workload.clause), schema)


class OneSet:
    """The rules that are in force all the time."""

    def __init__(self, count: int) -> None:
        self.stored = ProcessorSet(1, tuple(rules.some(count))).to_bytes()

    def retained(self) -> Sequence[ProcessorSet]:
        return [ProcessorSet.from_bytes(self.stored)]

    def read_lookup(self, version: LookupVersion) -> bytes:
        raise AssertionError("there are no lookups")

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        raise AssertionError("no rule is replaced")

    def expired(self, time: int) -> None:
        raise AssertionError("no rule expires")


def schema_of(files: list[Path]) -> pa.Schema:
    schema = pq.read_schema(files[0])
    return schema.set(
        schema.names.index(TIMESTAMP), pa.field(TIMESTAMP, pa.timestamp("us", "UTC"))
    )  # as Spark hands it over


def drive(
    path: Stages, files: list[Path], batches: int, around: Callable[[str, Callable[[], None]], None]
) -> tuple[Stages, Results]:
    """The stream in so many micro-batches, each stage called through *around*."""
    schema = schema_of(files)
    found: Results = []
    for part in np.array_split(np.array(files, dtype=object), batches):
        chunks: Chunks = defaultdict(list)
        for file in part:
            table = pq.read_table(file)
            events = path.relevant(table.cast(schema))
            around("pack", partial(path.pack, events, chunks))
        around("process", partial(path.process, chunks, BEFORE_TIME, found))
    around("process", partial(path.process, {}, END_OF_TIME, found))
    return path, found


def matches_of(path: Stages, found: Results) -> pa.Table:
    schema = path.operator.output_schemas[OUTPUT]
    return pa.concat_tables([schema.empty_table(), *(batch_from_bytes(chunk, schema) for chunk in found)])


def check(name: str, answer: tuple[int, str], size: str) -> None:
    if answer != harness.expected(size, name):
        raise SystemExit(f"WRONG: {name}: {answer}, expected {harness.expected(size, name)}")


def resident() -> float:
    """The resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def profile_rules(count: int, size: str, files: list[Path], batches: int, top: int) -> None:
    """Print what so many rules cost."""
    schema, events, first = schema_of(files), SIZES[size][0], OneSet(1)
    drive(Stages.of_rules(first, schema), files[:1], 1, lambda stage, work: work())  # warms up
    only = OneSet(count)
    gc.collect()
    memory, begin = resident(), time.process_time()
    processors = only.retained()[0].processors
    read, begin = time.process_time() - begin, time.process_time()
    path = Stages.of_rules(only, schema)
    assert isinstance(path.operator, DynamicCepOperator)
    bound = path.operator.compiler.bind_all(processors)
    bind, begin = time.process_time() - begin, time.process_time()
    Selections.of([one for one in bound if isinstance(one, BoundPatternProcessor)]).matcher.linked  # noqa: B018 - makes the tables
    link = time.process_time() - begin
    memory = resident() - memory
    seconds = dict.fromkeys(STAGE_NAMES, 0.0)

    def timed(stage: str, work: Callable[[], Any]) -> None:
        begin = time.process_time()
        work()
        seconds[stage] += time.process_time() - begin

    path, found = drive(path, files, batches, timed)
    matches = matches_of(path, found)
    answer = rules.answer(matches)
    if count == len(rules.rules()):
        check("W6", answer, size)
    record = {
        "rules": count,
        "events": events,
        "read_s": round(read, 3),
        "bind_s": round(bind, 3),
        "link_s": round(link, 3),
        "kb_per_rule": round(memory * 1e3 / count, 1),
        **{f"{stage}_us_per_event": round(taken * 1e6 / events, 3) for stage, taken in seconds.items()},
        "us_per_event": round(sum(seconds.values()) * 1e6 / events, 3),
        "matches": answer[0],
        "checksum": answer[1],
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }
    print(json.dumps(record), flush=True)
    if top:
        profiles = {stage: cProfile.Profile() for stage in STAGE_NAMES}
        drive(Stages.of_rules(only, schema), files, batches, lambda stage, work: profiles[stage].runcall(work))
        for stage, profile in profiles.items():
            print(f"==== {stage}\n{_table(profile, top)[0]}\n")


def _table(profile: cProfile.Profile, top: int) -> tuple[str, int]:
    """The functions that take most time, and the number of calls."""
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out).strip_dirs().sort_stats("tottime")
    stats.print_stats(top)
    return out.getvalue().strip(), stats.total_calls  # type: ignore[attr-defined]


def main(arguments: list[str] | None = None) -> None:
    cli = harness.command_line("profile_path", "Profile the Python side of a stream.")
    cli.add_argument("--workload", choices=[*WORKLOADS, "W6"], default="W2")
    cli.add_argument("--rules", default="1,10,100,1000", help="the numbers of rules, for W6")
    cli.add_argument("--clause", action="store_true", help="the workload as MATCH_RECOGNIZE")
    cli.add_argument("--batches", type=int, default=4)
    cli.add_argument("--top", type=int, help="functions to show; default: 25, for W6 none")
    args = cli.parse_args(arguments)

    files = sorted((harness.data_folder(args.size, args.data) / "parquet").glob("*.parquet"))
    if args.workload == "W6":
        counts = args.rules.split(",")
        if len(counts) == 1:
            profile_rules(int(counts[0]), args.size, files, args.batches, args.top or 0)
        for count in counts if len(counts) > 1 else ():
            given = sys.argv[1:] if arguments is None else arguments
            subprocess.run([sys.executable, "-m", "benchmarks.profile_path", *given, "--rules", count], check=True)
        return
    workload = WORKLOADS[args.workload]
    events = SIZES[args.size][0]

    seconds = dict.fromkeys(STAGE_NAMES, 0.0)

    def timed(stage: str, work: Callable[[], Any]) -> None:
        begin = time.process_time()
        work()
        seconds[stage] += time.process_time() - begin

    def new() -> Stages:
        make = Stages.of_clause if args.clause else Stages.of_workload
        return make(workload, schema_of(files))

    def check_matches(matches: pa.Table) -> None:
        times = workload.times(matches, as_columns=args.clause)
        check(workload.name, (matches.num_rows, harness.checksum(workload.tag, times)), args.size)

    profiles = {stage: cProfile.Profile() for stage in STAGE_NAMES}
    drive(
        new(), files, args.batches, lambda stage, work: work()
    )  # warms up: kernels are compiled or read from the cache
    path, found = drive(new(), files, args.batches, timed)
    matches = matches_of(path, found)
    check_matches(matches)
    drive(new(), files, args.batches, lambda stage, work: profiles[stage].runcall(work))
    for stage, profile in profiles.items():
        table, calls = _table(profile, 25 if args.top is None else args.top)
        print(f"==== {stage}\n{table}\n")
        print(
            f"{workload.name} {stage}: {seconds[stage] * 1e9 / events:,.0f} ns of CPU per event,"
            f" {calls / events:.4f} Python function calls per event\n"
        )
    print(
        f"{workload.name}: {path.calls:,} calls of the stateful stage, {seconds['process'] * 1e6 / path.calls:,.0f} µs each"
    )
    if args.clause:
        clause = _checked(workload, schema_of(files))
        rows = pa.concat_tables([pq.read_table(file) for file in files]).cast(schema_of(files)).combine_chunks()
        match_table(clause, rows.slice(0, 1000))
        begin = time.process_time()
        matches = match_table(clause, rows)
        taken = time.process_time() - begin
        check_matches(matches)
        profile = cProfile.Profile()
        profile.runcall(match_table, clause, rows)
        table, _ = _table(profile, 25 if args.top is None else args.top)
        print(f"\n==== match_table\n{table}\n")
        print(f"{workload.name} match_table: {taken * 1e9 / events:,.0f} ns of CPU per event")


if __name__ == "__main__":
    main()
