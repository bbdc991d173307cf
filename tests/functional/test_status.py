"""saltctx.status, saltctx.doctor and saltctx.flush: as jobs of the minion, and outside it."""

import platform
import time


def status_as_a_job(minion):
    minion.module("it", "def go():\n    return 1\n")
    minion.start()
    first = minion.value("saltctx.status")
    for _ in range(3):
        minion.job("it.go")
    time.sleep(0.06)
    minion.job("it.go")
    before = minion.value("saltctx.status")
    minion.module("it", "def go():\n    return 22\n")
    minion.job("it.go")
    minion.job("sys.reload_modules")
    return [first, before, minion.value("saltctx.status"), str(minion.root)]


def test_status_as_a_job(sides):
    """Says that it is on, what it runs on, the generation, and what jobs ran on."""
    first, before, after, root = sides.saltctx(status_as_a_job)
    assert (first["active"], first["why"]) == (True, "switched on in the minion config")
    assert first["implementation"] == "C"
    assert first["implementation_reason"] is None
    assert first["gil"] in ("on", "off")
    assert first["versions"]["python"] == platform.python_version()
    assert sorted(first["versions"]) == ["python", "salt", "saltctx"]
    assert first["counts"] == {"adopted": 0, "rebuilt": 1, "partial": 0, "reloaded": 0, "fallback": 0}
    assert first["generation"]["number"] == 1
    assert first["generation"]["reason"] == "first job of this minion"
    assert 0 <= first["generation"]["age_seconds"] < 60
    assert any("multiprocessing: True" in left for left in first["left_to_salt"])

    assert before["counts"] == {"adopted": 5, "rebuilt": 1, "partial": 0, "reloaded": 0, "fallback": 0}
    assert before["generation"]["paths"] > 10

    assert after["counts"]["rebuilt"] == 2
    assert after["counts"]["reloaded"] == 1
    assert after["generation"]["number"] == 3
    assert after["generation"]["reason"] == "modules reloaded (sys.reload_modules)"
    assert [entry["reason"] for entry in after["reasons"]] == [
        "first job of this minion", f"module file changed: {root}/ext/modules/it.py",
        "modules reloaded (sys.reload_modules)",
    ]
    assert [entry["generation"] for entry in after["reasons"]] == [1, 2, 3]
    assert all(abs(entry["at"] - time.time()) < 120 for entry in after["reasons"])


def many_reasons(minion):
    minion.start()
    for _ in range(70):
        minion.job("saltctx.flush")
    return [len(minion.jobs().report.reasons()), len(minion.value("saltctx.status")["reasons"])]


def test_reasons_are_bounded(sides):
    kept, shown = sides.saltctx(many_reasons)
    assert kept == 50
    assert shown == 10


def status_outside(minion):
    """saltctx.status.status(opts) of a script: of a running minion's opts, of opts of no minion, of other opts."""
    import saltctx.status

    minion.start()
    before = saltctx.status.status(minion.minion.opts)
    minion.job("test.ping")
    after = saltctx.status.status(minion.minion.opts)
    other = saltctx.status.status({"id": "nobody", "saltctx": True, "multiprocessing": False})
    off = saltctx.status.status({"id": "nobody"})
    wrong = saltctx.status.status({"id": "nobody", "saltctx": "maybe", "conf_file": "/etc/salt/minion"})
    forking = saltctx.status.status({"id": "nobody", "saltctx": True})
    return [[one["active"], one["why"], one["generation"] is not None] for one in (
        before, after, other, off, wrong, forking,
    )]


def test_status_outside_a_job(sides):
    before, after, other, off, wrong, forking = sides.saltctx(status_outside)
    assert before[0] is False
    assert "no running minion" in before[1]
    assert after == [True, "switched on in the minion config", True]
    assert other[0] is False
    assert "no running minion" in other[1]
    assert off == [False, "not switched on: `saltctx: true` is not in the minion config", False]
    assert wrong[0] is False
    assert "'maybe'" in wrong[1]
    assert "/etc/salt/minion" in wrong[1]
    assert forking == [False, "multiprocessing is on: each job is a process of its own", False]


def doctor(minion):
    minion.start()
    ret = minion.job("saltctx.doctor")
    after = minion.job("test.ping")
    return [ret["retcode"], ret["success"], ret["return"], after["retcode"]]


def test_doctor_of_a_healthy_minion(sides):
    """Every check with what was found, none with advice; retcode 0."""
    retcode, success, report, after = sides.saltctx(doctor)
    assert (retcode, success, after) == (0, True, 0)
    assert report["healthy"] is True
    assert len(report["checks"]) > 20
    for check in report["checks"]:
        assert sorted(check) == ["advice", "check", "found", "ok"]
        assert check["ok"] is True
        assert check["found"]
        assert check["advice"] == ""
    names = [check["check"] for check in report["checks"]]
    assert "the C extension is in use" in names
    assert any(name.startswith("salt.minion.Minion._thread_return(") for name in names)


def test_doctor_of_the_reference(sides):
    """The failed check comes first, with what to do; the job's retcode is 1, the next one's 0."""
    retcode, success, report, after = sides.saltctx(doctor, environment={"SALTCTX_PURE": "1"})
    assert (retcode, success, after) == (1, False, 0)
    assert report["healthy"] is False
    failed = report["checks"][0]
    assert failed["check"] == "the C extension is in use"
    assert "SALTCTX_PURE" in failed["found"]
    assert "compiler" in failed["advice"]
    assert all(check["ok"] for check in report["checks"][1:])


def test_doctor_of_a_wrong_config(sides):
    retcode, _, report, _ = sides.saltctx(doctor, opts={"saltctx": {"freshness": "never"}})
    assert retcode == 1
    assert [check["ok"] for check in report["checks"]].count(False) == 1
    assert "'never'" in report["checks"][0]["found"]
    assert report["checks"][0]["advice"]


def test_doctor_of_a_forking_minion(sides):
    retcode, _, report, _ = sides.saltctx(doctor, opts={"multiprocessing": True})
    assert retcode == 1
    assert "multiprocessing: False" in report["checks"][0]["advice"]


def test_doctor_of_a_minion_that_is_off(sides):
    """Not switched on is no fault."""
    retcode, _, report, _ = sides.stock(doctor)
    assert retcode == 0
    assert report["healthy"] is True


def flush(minion):
    minion.start()
    minion.job("test.ping")
    answers = [minion.value("saltctx.flush"), minion.counts()["rebuilt"]]
    minion.job("test.ping")
    answers += [minion.counts()["rebuilt"], minion.reasons()[-1]]
    minion.job("test.ping")
    return [*answers, minion.counts()["rebuilt"]]


def test_flush(sides):
    """The next job rebuilds, once."""
    assert sides.saltctx(flush) == [True, 1, 2, "flushed (saltctx.flush)", 2]


def flush_of_a_minion_that_is_off(minion):
    minion.start()
    return [minion.value("saltctx.flush"), minion.retcode("saltctx.flush"), minion.retcode("test.ping")]


def test_flush_of_a_minion_that_is_off(sides):
    assert sides.stock(flush_of_a_minion_that_is_off) == [False, 0, 0]


def documentation(minion):
    minion.start()
    functions = minion.value("sys.list_functions", "saltctx")
    docs = minion.value("sys.doc", "saltctx")
    return [functions, sorted(name for name, text in docs.items() if "CLI Example" in text)]


def test_functions_have_their_documentation(sides):
    """Through sys.doc, with a CLI example each, as Salt asks; on a minion that is off as well."""
    functions = ["saltctx.doctor", "saltctx.flush", "saltctx.status"]
    assert sides.both(documentation) == [functions, functions]
