"""Pieces of work on several threads: each once, errors in the caller, with and without OpenMP."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch

from hsa_geo.ops.compiled import threads
from hsa_geo.ops.compiled.threads import run

ways = pytest.mark.parametrize("way", ["openmp", "pool"])


@pytest.fixture
def use(use_threads, monkeypatch):
    """Choose a number of threads, and OpenMP or the pool."""

    def choose(way: str, number: int) -> None:
        if way == "pool":
            monkeypatch.setattr(threads, "_openmp", lambda: None)
        elif threads._openmp() is None:
            pytest.skip("this torch has no GOMP_parallel")
        use_threads(number)

    return choose


@ways
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 100])
def test_every_piece_is_run_once(use, way, number, pieces):
    use(way, number)
    done: list[tuple[int, int]] = []
    run(lambda a, b: done.append((a, b)), [(i, i + 1) for i in range(pieces)])
    assert sorted(done) == [(i, i + 1) for i in range(pieces)]


@ways
def test_pieces_run_at_once(use, way):
    """Two pieces that wait for each other: one thread alone would wait in vain."""
    use(way, 2)
    both = threading.Barrier(2, timeout=20)
    met: list[int] = []
    run(lambda _: met.append(both.wait()), [(0,), (1,)])
    assert sorted(met) == [0, 1]


@ways
def test_one_thread_is_the_callers(use, way):
    """Without threads, nothing is handed to any, and the order is that of the pieces."""
    use(way, 1)
    seen = []
    run(lambda i: seen.append((i, threading.get_ident())), [(i,) for i in range(5)])
    assert seen == [(i, threading.get_ident()) for i in range(5)]


@ways
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_reaches_the_caller(use, way, number, kind):
    use(way, number)
    done = []

    def work(i: int) -> None:
        if i == 3:
            raise kind("piece 3")
        done.append(i)

    with pytest.raises(kind, match="piece 3"):
        run(work, [(i,) for i in range(8)])
    assert {0, 1, 2} <= set(done)
    assert 3 not in done
    run(work, [(0,), (1,)])  # and later work runs
    assert sorted(done[-2:]) == [0, 1]


@ways
def test_no_piece_starts_after_an_error(use, way):
    use(way, 2)
    started = []

    def work(i: int) -> None:
        started.append(i)
        if i == 0:
            raise ValueError("first")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="first"):
        run(work, [(i,) for i in range(1000)])
    assert len(started) < 20


@ways
def test_of_several_errors_the_caller_gets_the_first(use, way):
    use(way, 2)
    second = threading.Event()

    def work(i: int) -> None:
        if i == 0:
            try:
                raise ValueError("early")
            finally:
                second.set()
        second.wait(20)
        time.sleep(0.05)
        raise ValueError("late")

    with pytest.raises(ValueError, match="early"):
        run(work, [(0,), (1,)])


@ways
def test_work_within_work(use, way):
    """A piece may run pieces of its own (a custom module called inside another's kernel)."""
    use(way, 2)
    done = []
    run(lambda i: run(lambda j: done.append((i, j)), [(0,), (1,)]), [(0,), (1,)])
    assert sorted(done) == [(i, j) for i in range(2) for j in range(2)]


@ways
def test_two_callers_at_once(use, way):
    use(way, 2)
    done: dict[int, list[int]] = {0: [], 1: []}

    def call(me: int) -> None:
        torch.set_num_threads(2)  # which counts for each thread of its own
        for _ in range(50):
            run(done[me].append, [(i,) for i in range(10)])

    callers = [threading.Thread(target=call, args=(me,)) for me in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
        assert not caller.is_alive()
    assert sorted(done[0]) == sorted(done[1]) == sorted(list(range(10)) * 50)


@ways
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_computes_on_one_thread(use, way):
    """The parent's threads are not there, and to wait for them is to wait forever."""
    use(way, 2)
    run(lambda _: None, [(0,), (1,)])
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        code = 1
        try:
            done: list[int] = []
            run(lambda i: done.append((i, threading.get_ident())), [(i,) for i in range(4)])
            code = 0 if done == [(i, threading.get_ident()) for i in range(4)] else 2
        finally:
            os._exit(code)
    for _ in range(400):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0
    both = threading.Barrier(2, timeout=20)  # the parent still has its threads
    run(lambda _: both.wait() and None, [(0,), (1,)])
