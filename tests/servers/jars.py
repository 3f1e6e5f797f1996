"""The jars that tests need and Asterism does not: connectors of Spark, and servers that are Java programs."""

from __future__ import annotations

from pathlib import Path

from tests.discovery.servers import installed


def jars(name: str) -> list[Path]:
    """Those of ``scripts/jars/NAME.xml``.

    :raises NoServerError: there is no Maven, or it cannot download them
    """
    folder = Path(installed("ensure_jars.sh", name)[-1])
    return sorted(folder.glob("*.jar"))
