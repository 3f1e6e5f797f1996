"""The public Sigma rules for process creation on Windows: ``python -m benchmarks.sigma FOLDER``, without Spark.

*FOLDER* is a checkout of https://github.com/SigmaHQ/sigma, or any folder of rules. Its rules for process creation on Windows are
translated, bound and in force at once. Events then arrive in batches in a live engine, in one thread.

The events are generated from ``process_creation.tsv``: some 60 command lines as Windows and its usual programs write them
(services, browsers, updaters, office, tools of developers), by weight, with identifiers, paths, users and numbers that vary, so
that most command lines are distinct. One in 500 has weight 0: of an attacker or an administrator, whom some rules find.

Times are CPU times of the process, so other programs matter little. One JSON line per case. The exit status is 1 if no rule
matches.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism import CEP, KeyedStream, LiveEngine
from asterism.discovery import SigmaPatternProcessorDiscovererFactory
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor

COLUMNS = (
    "EventID", "Computer", "User", "Image", "OriginalFileName", "CommandLine", "CurrentDirectory", "ParentImage",
    "ParentCommandLine", "ParentUser", "IntegrityLevel", "LogonId", "Company", "Description", "Product", "FileVersion",
    "Hashes", "ProcessId", "SubjectUserName", "Provider_Name", "imphash", "sha1", "md5", "sha256",
)  # fmt: skip
"""Of the events; all are texts, as most shippers write them."""
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), *((name, pa.string()) for name in COLUMNS)])
SYSTEM32 = "C:\\Windows\\System32\\"
SERVICES_OF_WINDOWS = (
    "wuauserv",
    "BITS",
    "Schedule",
    "Winmgmt",
    "Themes",
    "lmhosts",
    "WpnUserService",
    "AppXSvc",
    "DoSvc",
    "UsoSvc",
)
ONE_IN = 500
START = datetime.fromtimestamp(0, UTC)


@lru_cache(maxsize=1)
def _templates() -> tuple[list[int], list[list[str]]]:
    """The weights of command lines, and for each the image, the command line, the image of the parent and the user."""
    lines = (Path(__file__).parent / "process_creation.tsv").read_text().splitlines()[1:]
    parts = [line.split("\t") for line in lines]
    return [int(weight) for weight, *_ in parts], [others for _, *others in parts]


def events(count: int, seed: int = 1) -> pa.Table:
    """Events of 300 computers, 1,000 a second."""
    rng = random.Random(seed)
    weights, templates = _templates()
    hostile = [template for weight, template in zip(weights, templates, strict=True) if not weight]
    rows = []
    for number in range(count):
        template = rng.choice(hostile) if rng.randrange(ONE_IN) == 0 else rng.choices(templates, weights)[0]
        rows.append(_event(rng, number, *template))
    return pa.Table.from_pylist(rows, SCHEMA)


def _event(rng: random.Random, number: int, image: str, command: str, parent: str, user: str) -> dict[str, Any]:
    values = {
        "user": f"user{rng.randrange(300)}",
        "n": str(rng.randrange(10_000)),
        "big": str(rng.randrange(10**9, 10**15)),
        "hex": f"{rng.getrandbits(96):024x}",
        "guid": f"{rng.getrandbits(32):08X}-0000-4F5A-9D3E-{rng.getrandbits(48):012X}",
        "date": f"2026{rng.randrange(1, 13):02}{rng.randrange(1, 29):02}",
        "service": rng.choice(SERVICES_OF_WINDOWS),
    }
    image, parent, user = (text.format(**values) for text in (image, parent, user))
    name = image.rpartition("\\")[2]
    digest = random.Random(name).getrandbits(512)
    own = user.startswith("CORP")
    return {
        "ts": number * 1_000,
        "EventID": "1",
        "Computer": f"PC-{rng.randrange(300):04}.corp.example",
        "User": user,
        "Image": image,
        "OriginalFileName": name,
        "CommandLine": command.format(image=f'"{image}"', **values),
        "CurrentDirectory": f"C:\\Users\\{values['user']}\\" if own else SYSTEM32,
        "ParentImage": parent,
        "ParentCommandLine": f'"{parent}"' if own else f"{parent} -k netsvcs -p",
        "ParentUser": user,
        "IntegrityLevel": "Medium" if own else "System",
        "LogonId": f"0x{rng.getrandbits(24):x}" if own else "0x3e7",
        "Company": "Microsoft Corporation",
        "Description": f"{name.partition('.')[0]} for Windows",
        "Product": "Microsoft® Windows® Operating System",
        "FileVersion": "10.0.26100.1 (WinBuild.160101.0800)",
        "Hashes": f"MD5={digest & (1 << 128) - 1:032X},SHA256={digest >> 256:064X},IMPHASH={digest >> 384:032X}",
        "ProcessId": str(rng.randrange(400, 60_000)),
    }


def rules_in(folder: Path) -> list[Discovered]:
    """The rules for process creation on Windows in a checkout; all rules if the folder has another form."""
    folders = [path for path in folder.glob("rules*/windows/process_creation") if "emerging" not in str(path)]
    found: list[Discovered] = []
    for one in sorted(folders) or [folder]:
        discoverer = SigmaPatternProcessorDiscovererFactory(one).create_pattern_processor_discoverer()
        found += discoverer.initial_pattern_processors()
    return found


def measure_binding(folder: Path) -> tuple[LiveEngine, dict[str, Any]]:
    began = time.process_time()
    found = rules_in(folder)
    translated = time.process_time()
    rules = tuple(rule for rule in found if isinstance(rule, PatternProcessor))
    factory = GivenPatternProcessorDiscovererFactory(rules)
    engine = CEP.pattern_processors(KeyedStream(SCHEMA, time="ts"), factory).open()
    bound = time.process_time()
    engine.process(events(1, seed=2), watermark=START)
    record = {
        "case": "binding",
        "rules": len(found),
        "refused_when_read": sum(isinstance(rule, RefusedProcessor) for rule in found),
        "translate_cpu_s": round(translated - began, 2),
        "bind_cpu_s": round(bound - translated, 2),
        "first_batch_cpu_s": round(time.process_time() - bound, 2),
        "rss_mb": _rss(),
    }
    return engine, record


def measure_batches(engine: LiveEngine, table: pa.Table, size: int, begin: int) -> dict[str, Any]:
    """:param begin: milliseconds since START of the first event"""
    matches, first = 0, time.process_time()
    for at in range(0, table.num_rows, size):
        part = table.slice(at, size)
        times = pa.array([(begin + at + row) * 1_000 for row in range(part.num_rows)], SCHEMA.field("ts").type)
        until = START + timedelta(milliseconds=begin + at + part.num_rows - 1)
        matches += engine.process(part.set_column(0, "ts", times), watermark=until)["matches"].num_rows
    taken = time.process_time() - first
    return {
        "case": f"batches of {size:,}",
        "events": table.num_rows,
        "matches": matches,
        "cpu_us_per_event": round(taken / table.num_rows * 1e6, 1),
        "events_per_cpu_s": round(table.num_rows / taken),
        "rss_mb": _rss(),
    }


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.sigma", description=(__doc__ or "").partition("\n")[0])
    cli.add_argument("folder", type=Path, help="a checkout of SigmaHQ/sigma")
    cli.add_argument("--events", type=int, default=20_000)
    cli.add_argument("--batches", type=int, nargs="+", default=[10_000, 1_000, 100])
    args = cli.parse_args(arguments)
    engine, record = measure_binding(args.folder)
    print(json.dumps(record), flush=True)
    table, begin, matches = events(args.events), 1_000, 0
    for size in args.batches:
        measured = table.slice(0, min(args.events, 100 * size))
        for round_ in range(2):  # the first warms up
            record = {"round": round_} | measure_batches(engine, measured, size, begin)
            begin += measured.num_rows
        print(json.dumps(record), flush=True)
        matches += record["matches"]
    engine.close()
    return 0 if matches else 1


if __name__ == "__main__":
    sys.exit(main())
