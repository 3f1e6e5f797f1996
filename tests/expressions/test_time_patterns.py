"""Patterns of dates and times: the answers of Spark 4.3, and what is refused. Random ones are in ``test_sql_property.py``."""

from __future__ import annotations

from datetime import datetime

import pytest

from asterism.columns.time import to_micros
from asterism.expressions.time_patterns import TimePatternError, reader, writer

AT = to_micros(datetime(2024, 2, 9, 15, 4, 5, 678901))


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("y yy yyy yyyyy", "2024 24 2024 02024"),
        ("M MM MMM MMMM L LLL", "2 02 Feb February 2 Feb"),
        ("d dd D DD DDD", "9 09 40 40 040"),
        ("Q QQ QQQ q E EEEE", "1 01 Q1 1 Fri Friday"),
        ("H k h hh K a", "15 15 3 03 3 PM"),
        ("m ss S SSS SSSSSSSSS", "4 05 6 678 678901000"),
        ("X XX XXX x xx xxx Z", "+01 +0100 +01:00 +01 +0100 +01:00 +0100"),
        ("yyyy''MM [[HH]]'at'", "2024'02 15at"),
    ],
)
def test_written(pattern: str, written: str) -> None:
    assert writer(pattern)(AT, 3600) == written


def test_offsets_of_utc() -> None:
    assert writer("X XXX x xxx Z")(AT, 0) == "Z Z +00 +00:00 +0000"


READ = {
    ("2024-1-5", "y-M-d"): "2024-01-05 00:00:00",
    ("20240209130405", "yyyyMMddHHmmss"): "2024-02-09 13:04:05",
    ("2024-01-05 11 pm", "yyyy-MM-dd hh a"): "2024-01-05 23:00:00",
    ("2024-01-05 12 am", "yyyy-MM-dd hh a"): "2024-01-05 00:00:00",
    ("2024-01-05 12", "yyyy-MM-dd hh"): "2024-01-05 00:00:00",
    ("2024-february-05", "yyyy-MMMM-dd"): "2024-02-05 00:00:00",
    ("12:30", "HH:mm"): "1970-01-01 12:30:00",
    ("2024-02-09 01:02:03.5", "yyyy-MM-dd HH:mm:ss.SSS"): "2024-02-09 01:02:03.500000",
    ("99-02-09", "yy-MM-dd"): "2099-02-09 00:00:00",
    ("2024-02-09", "yyyy-MM-dd[ HH:mm]"): "2024-02-09 00:00:00",
    ("2024-02-09 24", "yyyy-MM-dd kk"): "2024-02-09 00:00:00",
    ("5/6/2024 5:06:07 PM", "M/d/yyyy h:mm:ss a"): "2024-05-06 17:06:07",
    ("2024T", "yyyy't'"): "2024-01-01 00:00:00",
    **dict.fromkeys(
        [
            ("2024-1-5", "yyyy-MM-dd"), ("020240105", "yyyyMMdd"), ("2024-01-05 13 PM", "yyyy-MM-dd hh a"),
            ("2023-02-29", "yyyy-MM-dd"), ("2024-02-09 01:02:03.", "yyyy-MM-dd HH:mm:ss.SSS"), ("12024-02-09", "yyyy-MM-dd"),
            ("2024-02-09 01:02:03.1234", "yyyy-MM-dd HH:mm:ss.SSS"), (" 2024-02-09", "yyyy-MM-dd"), ("2024-02-09x", "yyyy-MM-dd"),
            ("2024-02-09 24:00", "yyyy-MM-dd HH:mm"), ("2024-02-09 13:30 am", "yyyy-MM-dd HH:mm a"), ("02-29", "MM-dd"),
        ]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "pattern"), READ)
def test_read(text: str, pattern: str) -> None:
    expected = READ[text, pattern]
    if expected is None:
        with pytest.raises(ValueError, match=r".+"):
            reader(pattern)(text)
    else:
        assert reader(pattern)(text) == (to_micros(datetime.fromisoformat(expected)), None)


def test_offsets_are_read() -> None:
    texts = {"+05": "X", "+0530": "XX", "+05:30": "XXX", "z": "X", "-1200": "Z"}
    assert [reader(pattern)(text)[1] for text, pattern in texts.items()] == [18_000, 19_800, 19_800, 0, -43_200]


@pytest.mark.parametrize("pattern", ["YYYY", "zzzz", "MMMMM", "'open", "[HH", "HH]", "{", "ddd", "y" * 300])
def test_refused(pattern: str) -> None:
    with pytest.raises(TimePatternError):
        writer(pattern)


@pytest.mark.parametrize("pattern", ["E", "D", "yyy", "dM", "HH hh", "a", "MM MMM", "[HH"])
def test_refused_for_reading(pattern: str) -> None:
    with pytest.raises(TimePatternError):
        reader(pattern)
