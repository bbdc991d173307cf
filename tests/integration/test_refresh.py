"""Reloads, refreshes and syncs on a real minion: jobs before, beside and after them come out right."""

import time
from collections.abc import Callable

import pytest
from realsalt import Call, RealSalt, retcode_jobs

MODULE = '''
"""A module that is edited while the minion runs."""


def version():
    """
    CLI Example:

    .. code-block:: bash

        salt '*' {name}.version
    """
    return {version}
'''

SECONDS = 30


def until(what: Callable[[], object]) -> bool:
    """Whether `what` comes true in time."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.2)
    return False


def source(name: str, version: int) -> str:
    return MODULE.format(name=name, version=version)


@pytest.fixture
def edited(salt: RealSalt, request: pytest.FixtureRequest) -> str:
    """A custom module of this test's own, at version 1 on master and minion."""
    name = request.node.name.removeprefix("test_")
    salt.write_module(name, source(name, 1))
    assert salt.run(f"{name}.version").value == 1
    return name


def test_reload_modules_as_a_job(salt: RealSalt) -> None:
    back = salt.run("sys.reload_modules")
    assert back.success, back.value
    assert back.value in (None, True)
    assert salt.run("test.ping").value is True


def test_reload_modules_beside_other_jobs(salt: RealSalt) -> None:
    calls: list[Call] = []
    for number, call in enumerate(retcode_jobs(120, seed=1)):
        calls.append(call)
        if number % 10 == 0:
            calls.append(Call("sys.reload_modules", retcode=0))
    returns = salt.run_many(calls)
    assert [back.call for back in returns if back.lost] == []
    assert [(back.call, back.retcode) for back in returns if back.wrong_retcode] == []
    assert [back.value for back in returns if back.call.fun == "rig.own" and (back.failed or back.foreign_keys)] == []


def test_refresh_modules_beside_other_jobs(salt: RealSalt) -> None:
    calls: list[Call] = []
    for number, call in enumerate(retcode_jobs(120, seed=2)):
        calls.append(call)
        if number % 10 == 0:
            # async: the job would otherwise wait for the refresh, and the refresh for the jobs.
            calls.append(Call("saltutil.refresh_modules", kwarg={"async": True}, retcode=0))
    returns = salt.run_many(calls)
    assert [back.call for back in returns if back.lost] == []
    assert [(back.call, back.retcode) for back in returns if back.wrong_retcode] == []
    assert [back.value for back in returns if back.call.fun == "rig.own" and (back.failed or back.foreign_keys)] == []


def test_edit_in_place(salt: RealSalt, edited: str) -> None:
    salt.write_module(edited, source(edited, 2))
    assert salt.run(f"{edited}.version").value == 2


def test_sync_modules(salt: RealSalt, edited: str) -> None:
    salt.write_master_module(edited, source(edited, 2))
    assert salt.run(f"{edited}.version").value == 1
    back = salt.run("saltutil.sync_modules")
    assert back.value == [f"modules.{edited}"]
    assert salt.run(f"{edited}.version").value == 2


def test_sync_modules_of_a_new_module(salt: RealSalt) -> None:
    name = "brand_new"
    assert not salt.run(f"{name}.version").success
    salt.write_master_module(name, source(name, 1))
    assert salt.run("saltutil.sync_modules").value == [f"modules.{name}"]
    assert salt.run(f"{name}.version").value == 1


def test_refresh_modules(salt: RealSalt, edited: str) -> None:
    salt.write_module(edited, source(edited, 2))
    assert salt.run("saltutil.refresh_modules").value is True
    assert salt.run(f"{edited}.version").value == 2


def test_refresh_pillar(salt: RealSalt) -> None:
    """New pillar counts once its refresh is through."""
    (salt.root / "pillar/top.sls").write_text("base:\n  '*': [data]\n")
    (salt.root / "pillar/data.sls").write_text("rig_value: fresh\n")
    assert salt.run("rig.pillar_is", "rig_value", "fresh").value is False
    assert salt.run("saltutil.refresh_pillar").value is True
    assert until(lambda: salt.run("rig.pillar_is", "rig_value", "fresh").value)
    assert salt.run("test.ping").value is True


def test_restarted_minion(salt: RealSalt) -> None:
    salt.restart_minion()
    assert salt.run("test.ping").value is True
