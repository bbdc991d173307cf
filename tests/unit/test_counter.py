"""Counter: a number that any thread adds to."""

import threading

import pytest


def test_counts(core):
    counter = core.Counter()
    assert counter.value == 0
    assert [counter.add() for _ in range(3)] == [None] * 3
    assert counter.value == 3
    assert core.Counter().value == 0


def test_no_arguments(core):
    with pytest.raises(TypeError):
        core.Counter(1)
    with pytest.raises(TypeError):
        core.Counter().add(1)
    with pytest.raises(AttributeError):
        core.Counter().value = 1


def test_no_addition_is_lost(core):
    counter, barrier = core.Counter(), threading.Barrier(8)

    def add():
        barrier.wait()
        for _ in range(2000):
            counter.add()

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 16000
