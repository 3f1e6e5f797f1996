"""The store of rules in S3, without Spark: settings of S3A, requests that fail, and what a reader sees meanwhile."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from pyarrow import fs

from asterism.discovery import status_of
from asterism.errors import StateError
from asterism.files.file_systems import s3_arguments
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.set_store import FolderStore
from tests.discovery.servers import running_or_skipped
from tests.servers.faulty_http import Weather
from tests.servers.s3 import BUCKET, KEY, S3, SECRET


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_or_skipped(S3) as server:
        yield server


@pytest.mark.parametrize("weather", [Weather(), Weather(throttled=0.3), Weather(broken=5), Weather(cut=7)])
def test_a_store_on_s3(s3: S3, weather: Weather) -> None:
    """With the settings of S3A that the session has. Each file is written by one request, and nothing else is left there."""
    store = FolderStore(f"s3a://{BUCKET}/{id(weather)}", s3.hadoop)
    assert not store.exists()
    s3.weather = weather
    s3.proxy.requests.clear()
    try:
        store.claim("0" * 32)
        for version in range(1, 4):
            store.write_status(Status(version=version))
            of_a_task = pickle.loads(pickle.dumps(store))
            assert of_a_task.read_status().version == version
        assert store.belongs_to("0" * 32)
        assert not store.belongs_to("1" * 32)
    finally:
        s3.weather = Weather()
    written = [each for each in s3.proxy.requests if each.method == "PUT" and each.status == 200]
    assert len(written) == 4 or weather.cut
    selected = fs.FileSelector(f"{BUCKET}/{id(weather)}", recursive=True)
    assert sorted(info.base_name for info in s3.files().get_file_info(selected)) == ["owner", "status.json"]


def test_commands_take_the_settings_from_the_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no session of Spark."""
    place = f"s3a://{BUCKET}/checkpoint"
    FolderStore(f"{place}/pattern_processors", s3.hadoop).claim("0" * 32)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert status_of(place).version is None or status_of(place).version == 0
    with pytest.raises(StateError, match="is not the checkpoint of a query"):
        status_of(f"s3a://{BUCKET}/elsewhere")


def test_settings_of_a_bucket_come_first() -> None:
    settings = {
        "fs.s3a.access.key": "a",
        "fs.s3a.bucket.rules.access.key": "b",
        "fs.s3a.endpoint": "minio:9000",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert s3_arguments(settings, "rules")["access_key"] == "b"
    assert s3_arguments(settings, "others")["access_key"] == "a"
    found = s3_arguments(settings, "rules")
    assert (found["endpoint_override"], found["scheme"]) == ("minio:9000", "http")
    assert s3_arguments({"fs.s3a.aws.credentials.provider": "org.AnonymousAWSCredentialsProvider"}, "x")["anonymous"]
