"""Stores checkpoints made by this release: ``python -m tests.upgrade.make`` (``--kinds row_pattern``: only of this kind;
``--release NAME``: under another name).
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.nemesis.queries import QUERIES
from tests.nemesis.victim import session
from tests.upgrade.checkpoints import archive_of, begin, query_of, store


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.make", description=__doc__)
    parser.add_argument("--release", default=version("asterism"), help="default: that of the package")
    parser.add_argument("--kinds", default=",".join(QUERIES), help=f"default: {','.join(QUERIES)}")
    options = parser.parse_args()
    spark = session()
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory() as name:
            query = query_of(kind, Path(name))
            begin(spark, query, Path(name))
            path = archive_of(options.release, kind)
            store(query, path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
