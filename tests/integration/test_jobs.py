"""Jobs on a real threaded minion: each has its own retcode and context, and none is lost."""

import sys
from importlib import metadata

import psutil
import pytest
from realsalt import Call, RealSalt, retcode_jobs

JOBS = 400
IN_FLIGHT = 16


def own_pids(salt: RealSalt) -> set[int]:
    return {process.pid for daemon in (salt.master, salt.minion) for process in daemon.processes()}


def test_status_says_on(salt: RealSalt) -> None:
    back = salt.run("saltctx.status")
    assert back.success, back.value
    assert back.value["active"] is True, back.value


def test_doctor_is_content(salt: RealSalt) -> None:
    back = salt.run("saltctx.doctor")
    assert back.success, back.value
    assert back.value["healthy"] is True, back.value


def test_ping(salt: RealSalt) -> None:
    back = salt.run("test.ping")
    assert (back.value, back.retcode, back.success) == (True, 0, True)


def test_own_retcode_and_context_at_16_in_flight(salt: RealSalt) -> None:
    returns = salt.run_many(retcode_jobs(JOBS), IN_FLIGHT)
    assert len(returns) == JOBS
    assert [back.call.arg for back in returns if back.lost] == []
    assert [back.value for back in returns if back.failed] == []
    assert [(back.call.retcode, back.retcode) for back in returns if back.wrong_retcode] == []
    assert [(back.call.arg, back.foreign_keys) for back in returns if back.foreign_keys] == []
    assert [back.call.retcode for back in returns if back.success != (back.call.retcode == 0)] == []


def test_context_is_empty_in_the_next_job(salt: RealSalt) -> None:
    salt.run("rig.own", 1, 7)
    back = salt.run("rig.keys")
    assert (back.value, back.retcode) == ([], 0)


def test_a_failing_job_beside_good_ones(salt: RealSalt) -> None:
    """An exception in one job fails that job alone."""
    calls = [Call("test.exception", ("boom",)), Call("test.ping", retcode=0)] * 20
    returns = salt.run_many(calls, IN_FLIGHT)
    assert len(returns) == len(calls)
    for back in returns:
        assert not back.lost
        assert back.success is (back.call.fun == "test.ping"), back


def test_unknown_function(salt: RealSalt) -> None:
    back = salt.run("rig.nothing_of_this_name")
    assert not back.lost
    assert not back.success
    assert back.retcode != 0


def test_several_functions_in_one_job(salt: RealSalt) -> None:
    """`salt MINION f1,f2`: each function has a retcode of its own."""
    back = salt.run_many([Call(["test.ping", "rig.own", "test.ping"], ([], [1, 9], []))])[0]
    assert not back.lost
    assert back.value["rig.own"]["kept"] is True
    assert back.data is not None
    assert back.data["retcode"]["rig.own"] == 9
    assert back.data["retcode"]["test.ping"] == 0


def test_state_single(salt: RealSalt) -> None:
    back = salt.run("state.single", "test.succeed_with_changes", "thing")
    assert back.success, back.value
    (state,) = back.value.values()
    assert state["result"] is True
    assert state["changes"]


def test_state_single_that_fails(salt: RealSalt) -> None:
    back = salt.run("state.single", "test.fail_without_changes", "thing")
    assert not back.success
    assert back.retcode == 2
    assert salt.run("test.ping").retcode == 0


def test_state_apply(salt: RealSalt) -> None:
    back = salt.run("state.apply", "rig")
    assert back.success, back.value
    assert all(state["result"] is True for state in back.value.values())


def test_nothing_listens_beyond_loopback(salt: RealSalt) -> None:
    pids = own_pids(salt)
    listening = [
        connection.laddr.ip
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_minion_is_not_stock_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its entry point no job would run on saltctx, and the figures would be stock Salt's."""
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(metadata.PackageNotFoundError, match="saltctx"):
        RealSalt(saltctx=True)
