"""Child processes, and backtests as jobs in one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from asterism.console import backtests as module
from asterism.console import worker as worker_module
from asterism.console.backtests import BacktestJob, Backtests
from asterism.console.worker import WorkerError, WorkerProcess
from asterism.errors import PatternProcessorError
from asterism.http.messages import AnswerError
from tests.kit import until


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    found = WorkerProcess("tests.console.children", {"a": 1})
    yield found
    found.stop()


@pytest.fixture
def jobs(worker: WorkerProcess) -> Iterator[Backtests]:
    found = Backtests(worker)
    yield found
    found.close()


def ask(worker: WorkerProcess, what: str = "", **options: Any) -> Any:
    return worker.ask({"do": what}, **{"timeout": 60.0, **options})


def test_a_child_answers_many_requests(worker: WorkerProcess) -> None:
    progress: list[Any] = []
    first = ask(worker, on_progress=progress.append)
    assert (first["setup"], first["request"]) == ({"a": 1}, {"do": ""})
    assert progress == [{"stage": "working"}]
    assert ask(worker, "print")["pid"] == first["pid"]  # what is printed is no response
    with pytest.raises(PatternProcessorError, match="no\n  because\n  Hint: do"):
        ask(worker, "refuse")
    with pytest.raises(PatternProcessorError, match="internal error") as caught:
        ask(worker, "fail")
    assert "secret" not in str(caught.value)
    assert ask(worker)["pid"] == first["pid"]


def test_a_child_that_is_stopped_or_dies_is_replaced(worker: WorkerProcess) -> None:
    first = ask(worker)["pid"]
    with pytest.raises(WorkerError, match=r"longer than 0\.2 seconds"):
        ask(worker, "sleep", timeout=0.2)
    with pytest.raises(WorkerError, match="the process that computes this has ended"):
        ask(worker, "die")
    with pytest.raises(WorkerError, match="more than 20,000,000 bytes"):
        ask(worker, "flood")
    assert ask(worker)["pid"] != first
    worker.close()
    worker.close()
    assert ask(worker)["setup"] == {"a": 1}


def wait(job: BacktestJob) -> str:
    until(lambda: job.state not in (module.WAITING, module.RUNNING))
    return job.state


def test_backtests_run_one_after_the_other(jobs: Backtests) -> None:
    some = [jobs.submit("pair", number, {"do": ""}, "ann") for number in range(1, 4)]
    assert [wait(job) for job in some] == [module.DONE] * 3
    assert len({job.result["pid"] for job in some}) == 1
    assert jobs.get(some[0].number).to_dict()["result"] == some[0].result
    failed = jobs.submit("pair", 4, {"do": "refuse"}, "ann")
    assert wait(failed) == module.FAILED
    assert failed.error == {"code": "PATTERN_PROCESSOR", "message": "no", "detail": "because", "hint": "do"}
    with pytest.raises(PatternProcessorError, match="there is no backtest 99"):
        jobs.get(99)


def test_backtests_are_cancelled_and_bounded(jobs: Backtests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 6)
    running = jobs.submit("pair", 1, {"do": "sleep"}, "ann")
    until(lambda: running.progress == {"stage": "sleeping"})
    waiting = [jobs.submit("pair", 2, {"do": ""}, "ann") for _ in range(module.MAX_WAITING)]
    with pytest.raises(AnswerError) as caught:
        jobs.submit("pair", 3, {}, "ann")
    assert caught.value.answer.status == 503
    assert jobs.cancel(waiting[0].number).state == module.CANCELLED
    assert jobs.cancel(running.number).state == module.CANCELLED
    assert [wait(job) for job in waiting[1:]] == [module.DONE] * 3
    assert jobs.cancel(waiting[1].number).state == module.DONE
    for _ in range(10):
        wait(jobs.submit("pair", 4, {"do": ""}, "ann"))
    assert len(jobs._jobs) <= 6
    assert waiting[0].result is None


def test_an_idle_child_ends(jobs: Backtests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.05)
    first = jobs.submit("pair", 1, {"do": ""}, "ann")
    wait(first)
    until(lambda: jobs._worker._process is None)
    again = jobs.submit("pair", 1, {"do": ""}, "ann")
    assert wait(again) == module.DONE
    assert again.result["pid"] != first.result["pid"]


def test_requests_wait_for_each_other(worker: WorkerProcess) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(ask(worker)["pid"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_request_without_a_client_ends(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(worker)["pid"]
    gone: Future[None] = Future()
    refused: list[str] = []

    def abandoned(what: str) -> None:
        with pytest.raises(WorkerError) as caught:
            ask(worker, what, gone=gone)
        refused.append(caught.value.message)

    monkeypatch.setattr(worker_module, "ABANDONED", 0.2)
    threads = [threading.Thread(target=abandoned, args=("sleep",)) for _ in range(2)]  # one works, and one waits
    for thread in threads:
        thread.start()
    gone.set_result(None)
    for thread in threads:
        thread.join(30)
    assert refused == ["the client has closed the connection"] * 2
    assert ask(worker, gone=Future())["request"] == {"do": ""}
    assert ask(worker, gone=Future())["pid"] in (first, worker._process and worker._process.pid)
