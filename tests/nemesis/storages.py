"""Where the checkpoints of victims are: on this machine, in HDFS, or in S3; and the harm that is done to these storages."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from pyarrow import fs

from tests.servers.faulty_http import Weather
from tests.servers.hdfs import Hdfs
from tests.servers.s3 import BUCKET, S3

STORAGE = "storage.json"
"""In the folder of a life: the checkpoint's location, and the settings of Spark with which it can be reached."""
_COPIED = ("offsets", "commits", "sources", "pattern_processors")
"""What a replay reads."""


class Storage(ABC):
    """A storage that is not a folder. Names are relative to :attr:`root`."""

    harms: ClassVar[Mapping[str, Callable[[Any], None]]] = {}
    """What can be done to it; :meth:`recover` ends it."""
    renames: ClassVar[bool] = True
    """Whether the store of rules renames its files there."""
    root: str
    settings: Mapping[str, str]

    @abstractmethod
    def files(self, folder: str) -> list[str]:
        """The names of all files in a folder and those below it.

        :raises OSError: it does not answer
        """

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def recover(self) -> None: ...

    @abstractmethod
    def remove(self) -> None: ...

    def location(self, folder: Path) -> str:
        return f"{self.root}/{folder.parent.name}-{folder.name}"

    def harm(self, name: str, seconds: float) -> None:
        """For so long, beginning now."""
        self.harms[name](self)
        timer = threading.Timer(seconds, self.recover)
        timer.daemon = True
        timer.start()

    def copy(self, folder: Path) -> None:
        """Copy what a replay reads into the checkpoint in *folder*."""
        place = self.location(folder).removeprefix(self.root + "/")
        for part in _COPIED:
            for name in self.files(f"{place}/{part}"):
                into = folder / "checkpoint" / name.removeprefix(place + "/")
                into.parent.mkdir(parents=True, exist_ok=True)
                into.write_bytes(self.read(name))


class InHdfs(Storage):
    """Its name node can be killed."""

    def __init__(self) -> None:
        self.server = Hdfs()
        self.server.start()
        self.root = f"{self.server.uri}/checkpoints"
        self.settings = {"spark.hadoop.dfs.client.retry.policy.enabled": "true", "spark.hadoop.dfs.replication": "1"}
        self._working = threading.Lock()

    def kill_name_node(self) -> None:
        with self._working:
            self.server.kill_name_node()

    harms: ClassVar[Mapping[str, Callable[[Any], None]]] = {"name_node": kill_name_node}

    def recover(self) -> None:
        with self._working:
            if not self.server.answers():
                self.server.start_name_node()

    def files(self, folder: str) -> list[str]:
        names: list[str] = []
        for status in self._listed(folder):
            name = f"{folder}/{status['pathSuffix']}"
            names += self.files(name) if status["type"] == "DIRECTORY" else [name]
        return names

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(self._url(folder, "LISTSTATUS"), timeout=10) as answer:
                listed: list[dict[str, Any]] = json.load(answer)["FileStatuses"]["FileStatus"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return listed

    def read(self, name: str) -> bytes:
        with urllib.request.urlopen(self._url(name, "OPEN"), timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def _url(self, name: str, operation: str) -> str:
        return f"http://{self.server.http}/webhdfs/v1/checkpoints/{urllib.parse.quote(name)}?op={operation}"

    def remove(self) -> None:
        self.server.remove()


class InS3(Storage):
    """It can refuse most requests, answer slowly, fail every tenth request, and break connections."""

    renames = False

    def __init__(self) -> None:
        self.server = S3()
        self.server.start()
        self.root = f"s3a://{BUCKET}/checkpoints"
        self.settings = self.server.spark
        self._files = self.server.files()

    def _weather(**how: Any) -> Callable[[Any], None]:
        def begin(storage: InS3) -> None:
            storage.server.weather = Weather(**how)

        return begin

    harms: ClassVar[Mapping[str, Callable[[Any], None]]] = {
        "throttled": _weather(throttled=0.75),
        "slow": _weather(seconds=0.5),
        "broken": _weather(broken=10),
        "cut": _weather(cut=10),
    }

    def recover(self) -> None:
        self.server.weather = Weather()

    def files(self, folder: str) -> list[str]:
        selected = fs.FileSelector(f"{BUCKET}/checkpoints/{folder}", allow_not_found=True, recursive=True)
        begin = f"{BUCKET}/checkpoints/"
        infos = self._files.get_file_info(selected)
        return [info.path.removeprefix(begin) for info in infos if info.type is fs.FileType.File]

    def read(self, name: str) -> bytes:
        with self._files.open_input_file(f"{BUCKET}/checkpoints/{name}") as file:
            content: bytes = file.readall()
        return content

    def remove(self) -> None:
        self.server.remove()


class Checkpoint:
    """Of one victim: in its folder, or in a storage.

    :param storage: None: a folder
    """

    def __init__(self, folder: Path, storage: Storage | None) -> None:
        self.folder, self.storage = folder, storage
        self._seen: dict[str, tuple[float, list[str]]] = {}
        location = str(folder / "checkpoint") if storage is None else storage.location(folder)
        settings = {} if storage is None else storage.settings
        (folder / STORAGE).write_text(json.dumps({"checkpoint": location, "settings": dict(settings)}))

    def names(self, part: str) -> list[str]:
        """Of the files in a part of the checkpoint; those of a storage as they were a tenth of a second ago."""
        if self.storage is None:
            return [path.name for path in (self.folder / "checkpoint" / part).rglob("*")]
        begin, names = self._seen.get(part, (0.0, []))
        if time.monotonic() > begin + 0.1:
            place = self.storage.location(self.folder).removeprefix(self.storage.root + "/")
            with suppress(OSError):  # its name node is dead: what was there is there
                names = [name.rpartition("/")[2] for name in self.storage.files(f"{place}/{part}")]
            self._seen[part] = time.monotonic(), names
        return names

    def newest(self, part: str) -> int:
        return max((int(name) for name in self.names(part) if name.isdigit()), default=-1)

    def count(self, part: str) -> int:
        """Of the files of state, or the newest number of a log."""
        if part != "state":
            return self.newest(part)
        return sum(1 for name in self.names(part) if name.endswith((".changelog", ".zip")))

    def fetched(self) -> None:
        """Copied to the folder, where a replay reads it."""
        if self.storage is not None:
            self.storage.copy(self.folder)


STORAGES: Mapping[str, type[InHdfs] | type[InS3]] = {"hdfs": InHdfs, "s3": InS3}
