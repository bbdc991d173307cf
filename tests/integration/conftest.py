"""A real master and a real threaded minion, one pair for the whole session."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest
from realsalt import RealSalt, ended_by_sigterm

HERE = Path(__file__).parent

# A minion takes seconds to start, and a wait inside the rig is bounded by itself: this is the net below it.
TIMEOUT = 200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@contextmanager
def _running(rig: RealSalt) -> Iterator[None]:
    with ended_by_sigterm():
        processes: list[psutil.Process] = []
        try:
            rig.start()
            yield
            processes = [process for daemon in (rig.master, rig.minion) for process in daemon.processes()]
        finally:
            rig.stop()
        assert not [process for process in processes if process.is_running()]
        assert not rig.root.exists()


@pytest.fixture(scope="session")
def running() -> Callable[[RealSalt], AbstractContextManager[None]]:
    """`with running(rig):` its daemons are up; afterwards nothing of it is left."""
    return _running


@pytest.fixture(scope="session")
def salt(running: Callable[[RealSalt], AbstractContextManager[None]]) -> Iterator[RealSalt]:
    """A minion with `saltctx: true`."""
    rig = RealSalt(saltctx=True)
    with running(rig):
        yield rig
