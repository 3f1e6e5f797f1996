"""What a user reads when a query cannot be shown or exported: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest

from asterism import export_metrics, monitor
from tests.kit import Golden, Provocation
from tests.spark.progress import WrittenQuery, WrittenSession


def without(*modules: str) -> Any:
    return mock.patch.dict(sys.modules, dict.fromkeys(modules))


def live_without_ipython() -> None:
    with without("IPython", "IPython.display"):
        monitor(WrittenQuery()).live()


def export_without_prometheus() -> None:
    with without("prometheus_client"):
        export_metrics(WrittenSession())


def export_on_a_used_port() -> None:
    error = OSError(98, "Address already in use")
    with mock.patch("asterism.metrics.query_metrics.start_http_server", side_effect=error):
        export_metrics(WrittenSession(), 9464)


TEXTS: dict[str, Provocation] = {
    "monitor_of_nothing": lambda: monitor(None),
    "live_for_no_time": lambda: monitor(WrittenQuery()).live(seconds=0),
    "live_without_ipython": live_without_ipython,
    "export_of_no_session": lambda: export_metrics("spark"),
    "export_on_no_port": lambda: export_metrics(WrittenSession(), 70_000),
    "export_on_no_host": lambda: export_metrics(WrittenSession(), 0, host=""),
    "export_on_a_used_port": export_on_a_used_port,
    "export_without_prometheus": export_without_prometheus,
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])


def test_no_golden_file_is_left_over(request: pytest.FixtureRequest) -> None:
    assert Golden(request.path).names() == set(TEXTS)
