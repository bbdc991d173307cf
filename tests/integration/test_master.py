"""A real master with `saltctx: true` of its own: the pillars that its workers compile, as minions see them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from realsalt import Call, RealSalt

TOP = "base:\n  '*':\n    - rig\n"
PILLAR = "who: {{{{ grains['id'] }}}}\nnumber: {number}\n"
EXT_PILLAR = """
CALLS = []

def ext_pillar(minion_id, pillar):
    CALLS.append(minion_id)
    return {{"ext": [len(CALLS), {number}, pillar["number"]]}}
"""


class Rig(RealSalt):
    """A master and a minion, both with saltctx, and the master's own pillar files and module."""

    def __init__(self) -> None:
        super().__init__(
            saltctx=True,
            master_opts={"saltctx": True, "ext_pillar": [{"numbers": []}], "log_level_logfile": "info"},
        )
        self.extension_modules = self.root / "master_ext"
        self._master_opts["extension_modules"] = str(self.extension_modules)

    def write_pillar(self, number: int) -> None:
        (self.root / "pillar").mkdir(exist_ok=True)
        (self.root / "pillar/top.sls").write_text(TOP)
        (self.root / "pillar/rig.sls").write_text(PILLAR.format(number=number))

    def write_ext_pillar(self, number: int) -> None:
        folder = self.extension_modules / "pillar"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "numbers.py").write_text(EXT_PILLAR.format(number=number))

    def pillar(self) -> dict[str, object]:
        value = self.run("pillar.items", unmask=True).value
        assert isinstance(value, dict)
        return value


@pytest.fixture(scope="module")
def rig(running: Callable[[RealSalt], AbstractContextManager[None]]) -> Iterator[Rig]:
    rig = Rig()
    with running(rig):
        rig.write_pillar(1)
        rig.write_ext_pillar(1)
        yield rig


def master_log(rig: Rig) -> str:
    return Path(rig.master_config["log_file"]).read_text()


def test_the_pillar_of_now(rig: Rig) -> None:
    """Each request is answered from the files of now, with the globals of a module as its file has them."""
    for number in range(1, 9):
        rig.write_pillar(number)
        if number % 2:
            rig.write_ext_pillar(number)
        last = number if number % 2 else number - 1
        found = rig.pillar()
        assert (found["who"], found["number"], found["ext"]) == ("rig", number, [1, last, number])
    assert "saltctx compiles the pillars" in master_log(rig)


def test_state_runs_side_by_side(rig: Rig) -> None:
    (rig.root / "srv/reads.sls").write_text("number {{ pillar['given'] }}:\n  test.nop: []\n")
    calls = [Call("state.apply", ("reads",), {"concurrent": True, "pillar": {"given": given}}) for given in range(40)]
    returns = rig.run_many(calls, in_flight=8)
    assert [one.lost for one in returns] == [False] * len(calls)
    ran = {one.call.kwarg["pillar"]["given"]: [chunk["__id__"] for chunk in one.value.values()] for one in returns}
    assert ran == {given: [f"number {given}"] for given in range(40)}


def test_the_master_complains_of_nothing(rig: Rig) -> None:
    rig.run("test.ping")
    assert "[ERROR" not in master_log(rig)
