"""Child processes for the tests of the supervisor."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from asterism.console.worker import Handler, OnProgress, run
from asterism.errors import StreamDefinitionError


def handler_of(setup: Mapping[str, Any]) -> Handler:
    def handle(request: Mapping[str, Any], on_progress: OnProgress) -> Any:
        match request.get("do"):
            case "sleep":
                on_progress({"stage": "sleeping"})
                time.sleep(600)
            case "die":
                os._exit(3)
            case "print":
                sys.stdout.write("noise")
                sys.stdout.flush()
                os.write(1, b"more noise\n")
            case "refuse":
                raise StreamDefinitionError("no", "because", "do")
            case "fail":
                raise ZeroDivisionError("secret")
            case "flood":
                return "x" * 30_000_000
        on_progress({"stage": "working"})
        return {"pid": os.getpid(), "setup": setup, "request": request}

    return handle


if __name__ == "__main__":
    run(handler_of)
