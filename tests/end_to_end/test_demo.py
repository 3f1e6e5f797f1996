"""The demo finds what is in the log, and draws it."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from asterism import CEP, Pattern
from examples import ssh_attacks as demo

pytestmark = pytest.mark.spark

PATTERNS = Path(demo.__file__).parent / "patterns"
ATTACK = demo.Attack(
    ip="24.151.103.17",
    first_id=649,
    last_id=945,
    failures=147,
    user="elastic_user_0",
    start=datetime(2017, 3, 30, 15, 54, 19, tzinfo=UTC),
    success=datetime(2017, 3, 30, 16, 1, 36, tzinfo=UTC),
)
# By hand: every login without a later end of its connection, but for the last of the log, half a minute before its end.
OPEN_SESSIONS = [
    demo.OpenSession("85.245.107.41", 20, "ubuntu", 58981, datetime(2017, 3, 27, 17, 8, 36, tzinfo=UTC)),
    demo.OpenSession("85.245.107.41", 1161, "ubuntu", 49325, datetime(2017, 3, 31, 11, 34, 26, tzinfo=UTC)),
    demo.OpenSession("85.245.107.41", 1343, "ubuntu", 56363, datetime(2017, 4, 4, 16, 45, 57, tzinfo=UTC)),
    demo.OpenSession("85.245.107.41", 1494, "ubuntu", 49548, datetime(2017, 4, 5, 11, 13, 44, tzinfo=UTC)),
    demo.OpenSession("85.245.107.41", 1720, "ubuntu", 55216, datetime(2017, 4, 7, 17, 25, 19, tzinfo=UTC)),
    demo.OpenSession("95.93.96.191", 1822, "ubuntu", 64731, datetime(2017, 4, 9, 18, 30, 15, tzinfo=UTC)),
    demo.OpenSession("85.245.107.41", 1846, "ubuntu", 52196, datetime(2017, 4, 10, 10, 10, 0, tzinfo=UTC)),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    demo.cut_log(folder)
    return folder


def test_cutting_the_log_loses_nothing(files: Path) -> None:
    parts = [file.read_text().splitlines() for file in sorted(files.iterdir())]
    header, *lines = demo.LOG.read_text().splitlines()
    assert len(parts) == demo.FILES
    assert {part[0] for part in parts} == {header}
    assert [line for part in parts for line in part[1:]] == lines


def test_the_guessed_password_is_found_file_by_file(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    printed = StringIO()
    view = demo.View(Console(file=printed, width=100), "Passwords guessed")
    assert demo.find_attacks(demo.read_stream(spark, files), tmp_path, view) == [ATTACK]
    title, *batches = printed.getvalue().splitlines()
    assert title == "Passwords guessed"
    assert len(batches) == demo.FILES
    assert batches[0] == "  batch  1     4 events, up to 27 Mar 17:08  found 0"
    assert batches[-1] == "  batch 12  1268 events, up to 20 Apr 14:14  found 1"


def test_sessions_left_open_are_found(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    assert demo.find_open_sessions(demo.read_stream(spark, files), tmp_path) == OPEN_SESSIONS


def test_the_json_form_asks_the_same_of_the_whole_log(spark: SparkSession) -> None:
    pattern = Pattern.from_json((PATTERNS / "brute_force.json").read_bytes())
    log = spark.read.schema(demo.COLUMNS).csv(str(demo.LOG), header=True)
    found = CEP.pattern(demo.keyed(log), pattern).select("FIRST(fails.event_id)", "COUNT(fails.*)", "login.event_id")
    assert [tuple(row) for row in found.collect()] == [(ATTACK.ip, ATTACK.first_id, ATTACK.failures, ATTACK.last_id)]


def test_the_json_form_of_the_open_session_is_the_same_pattern() -> None:
    assert Pattern.from_json((PATTERNS / "left_open.json").read_bytes()) == demo.LEFT_OPEN


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    printed = StringIO()
    console = Console(file=printed, width=80)
    demo.show_attacks(console, [ATTACK])
    demo.show_open_sessions(console, OPEN_SESSIONS)
    for cell in (ATTACK.ip, "30 Mar 15:54:19", "147", ATTACK.user, "7 min 17 s", "10 Apr 10:10:00"):
        assert f" {cell} " in printed.getvalue()


@pytest.mark.parametrize("attacks", [[ATTACK], []], ids=["an attack", "no attack"])
def test_the_picture_is_drawn(tmp_path: Path, attacks: list[demo.Attack]) -> None:
    file = tmp_path / "picture.png"
    demo.draw(attacks, OPEN_SESSIONS, file)
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert 30_000 < len(content) < 1_000_000
