"""Switching on and off: without the flag Salt runs its own code, a wrong one says what is wrong, no job is lost."""

import importlib
import importlib.metadata
import sys
import types

import pytest

CODE = """
def code(retcode):
    __context__["retcode"] = retcode
    return [retcode, type(__salt__.value()).__name__]
def keys():
    return sorted(key for key in __context__ if key != "retcode")
"""
PASSTHROUGHS = [
    "salt.minion.Minion._load_modules", "salt.minion.Minion._thread_multi_return",
    "salt.minion.Minion._thread_return", "salt.utils.schedule.Schedule.handle_func",
]
STOCK_JOBS = [[[3, "LazyLoader"], 3], [[0, "LazyLoader"], 0], [[4, "LazyLoader"], 4]]
SALTCTX_JOBS = [[[3, "Loader"], 3], [[0, "Loader"], 0], [[4, "Loader"], 4]]


def run_jobs(minion):
    """[return, retcode] of three jobs; what they return names the class of loader that they ran on."""
    rets = [minion.job("code.code", code) for code in (3, 0, 4)]
    return [[ret.get("return"), ret.get("retcode")] for ret in rets]


def places():
    from saltctx.hooks import deep, passthroughs

    return {"passthroughs": passthroughs.places(), "deep": deep.places()}


# -------------------------------------------------------------------------------- every attribute of Salt
LOOKED_AT = (
    "salt.minion", "salt.loader", "salt.loader.lazy", "salt.loader.context", "salt.loader.dunder", "salt.state",
    "salt.utils.optsdict", "salt.utils.process", "salt.utils.args", "salt.utils.entrypoints", "salt.utils.schedule",
    "salt.utils.event", "salt.utils.lazy", "salt.beacons", "salt.pillar", "salt.fileclient", "salt.template",
    "salt.utils.jinja", "salt.utils.decorators", "salt.metaproxy.proxy", "salt.metaproxy.deltaproxy",
)
# Python's own, where saltctx follows threads and module files.
PYTHON_TOO = ("threading", "concurrent.futures.thread", "concurrent.futures", "contextvars", "importlib.machinery")


def snapshot():
    """{dotted name: value} of all that Salt's modules and the classes defined in them hold."""
    found = {}
    for name, module in list(sys.modules.items()):
        is_looked_at = name.split(".")[0] == "salt" and not name.startswith("salt.loaded")
        if not isinstance(module, types.ModuleType) or not (is_looked_at or name in PYTHON_TOO):
            continue
        for attribute, value in list(vars(module).items()):
            found[f"{name}.{attribute}"] = value
            if isinstance(value, type) and value.__module__ == name:
                for member, held in list(vars(value).items()):
                    found[f"{name}.{attribute}.{member}"] = held
    return found


def contents(found):
    """{dotted name: copy} of the dicts of classes and functions that Salt keeps (MODULE_KIND_MAP, for one)."""
    return {
        name: dict(value) for name, value in found.items()
        if type(value) is dict and value and any(isinstance(held, type) for held in value.values())
    }


def changed_attributes(minion):
    for name in LOOKED_AT:
        importlib.import_module(name)
    minion.module("code", CODE)
    minion.sls("page", "x:\n  test.nop: []\n")
    before = snapshot()
    before_contents = contents(before)
    minion.start()
    results = run_jobs(minion)
    results.append(minion.retcode("state.apply", "page"))
    results.append(minion.job("", _load={"fun": ["code.code", "test.ping"], "arg": [[5], []]})["retcode"])
    minion.minion.module_refresh()
    results.append(minion.retcode("test.ping"))
    after = snapshot()
    changed = sorted(
        name for name, value in before.items() if after.get(name, value) is not value or name not in after
    )
    changed += sorted(name for name, held in before_contents.items() if dict(after[name]) != held)
    wrapped = {
        name: getattr(after[name], "__wrapped__", None) is before[name]
        or getattr(after[name], "__func__", None).__wrapped__ is before[name].__func__
        for name in changed if name in PASSTHROUGHS
    }
    return {"changed": changed, "wrapped": wrapped, "looked at": len(before), "jobs": results, "places": places(),
            "replaced": [name for name in places()["deep"] if name in before]}


def test_without_the_flag_salt_is_as_it_was(sides):
    """Every attribute of Salt's modules and classes is identical, but the documented pass-throughs, which say so."""
    bare = sides.stock(changed_attributes, environment={"SALTCTX_DISABLE": "1"})
    found = sides.stock(changed_attributes)
    assert sorted(set(found["changed"]) - set(bare["changed"])) == PASSTHROUGHS
    assert found["wrapped"] == dict.fromkeys(PASSTHROUGHS, True)
    assert found["places"] == {"passthroughs": PASSTHROUGHS, "deep": []}
    assert found["looked at"] > 5000
    assert found["jobs"] == bare["jobs"] == [*STOCK_JOBS, 0, {"code.code": 5, "test.ping": 0}, 0]


def test_with_the_flag_the_walk_finds_the_hooks(sides):
    """The same walk sees what is hooked when it is: it is not blind."""
    found = sides.saltctx(changed_attributes)
    assert set(PASSTHROUGHS) < set(found["changed"])
    assert len(found["replaced"]) > 8
    assert set(found["replaced"]) <= set(found["changed"])
    assert "salt.loader.lazy.MODULE_KIND_MAP" in found["changed"]
    assert found["jobs"] == [*SALTCTX_JOBS, 0, {"code.code": 5, "test.ping": 0}, 0]


# -------------------------------------------------------------------------------- on and off
def jobs_and_places(minion):
    minion.module("code", CODE)
    minion.start()
    jobs = run_jobs(minion)
    return {"jobs": jobs, "places": places(), "logged": minion.logged(), "status": status_of(minion)}


def status_of(minion):
    found = minion.value("saltctx.status")
    return [found["active"], found["why"]] if isinstance(found, dict) else found


def test_off_by_default(sides):
    found = sides.stock(jobs_and_places)
    assert found["jobs"] == STOCK_JOBS
    assert found["logged"] == []
    assert found["status"] == [False, "not switched on: `saltctx: true` is not in the minion config"]


@pytest.mark.parametrize("value", [True, {"enabled": True}, {"freshness": "stat"}, {}])
def test_switched_on(sides, value):
    """``true``, or any right block that does not say ``enabled: false``."""
    found = sides.saltctx(jobs_and_places, opts={"saltctx": value})
    assert found["jobs"] == SALTCTX_JOBS
    assert found["logged"] == []
    assert found["status"] == [True, "switched on in the minion config"]


@pytest.mark.parametrize("value", [False, None, {"enabled": False}, {"enabled": False, "freshness": "always"}])
def test_switched_off(sides, value):
    found = sides.stock(jobs_and_places, opts={"saltctx": value})
    assert found["jobs"] == STOCK_JOBS
    assert found["places"] == {"passthroughs": PASSTHROUGHS, "deep": []}
    assert found["logged"] == []
    assert found["status"] == [False, "not switched on: `saltctx: true` is not in the minion config"]


@pytest.mark.parametrize("set_to", ["1", "yes"])
def test_disabled_by_the_environment(sides, set_to):
    """No hook at all, whatever the config says."""
    found = sides.saltctx(jobs_and_places, environment={"SALTCTX_DISABLE": set_to})
    assert found["jobs"] == STOCK_JOBS
    assert found["places"] == {"passthroughs": [], "deep": []}
    assert found["logged"] == []
    assert found["status"] == [False, "SALTCTX_DISABLE is set in the environment"]


def test_environment_set_to_0(sides):
    assert sides.saltctx(jobs_and_places, environment={"SALTCTX_DISABLE": "0"})["jobs"] == SALTCTX_JOBS


@pytest.mark.parametrize(("value", "words"), [
    ("yes please", ["'yes please'", "expected true, false or a block of"]),
    (["stat"], ["['stat']", "expected true, false or a block of"]),
    (1, ["saltctx: 1 ", "expected true, false or a block of"]),
    ({"frehsness": "stat"}, ["unknown key 'frehsness'", "enabled", "freshness", "did you mean freshness?"]),
    ({"nothing of ours": 1}, ["unknown key 'nothing of ours'", "enabled", "freshness"]),
    ({3: 1}, ["unknown key", "3", "enabled"]),
    ({"freshness": "sometimes"}, ["freshness: 'sometimes'", "stat", "always"]),
    ({"freshness": None}, ["freshness: None", "stat", "always"]),
    ({"enabled": "true"}, ["enabled: 'true'", "true or false"]),
    ({"states": 1}, ["states: 1", "true or false"]),
])
def test_wrong_config(sides, value, words):
    """One log line names the key, the value, what is allowed and the file; Salt's own code runs every job."""
    found = sides.saltctx(jobs_and_places, opts={"saltctx": value})
    assert found["jobs"] == STOCK_JOBS
    assert found["places"] == {"passthroughs": PASSTHROUGHS, "deep": []}
    (line,) = found["logged"]
    for word in (*words, "saltctx", "/minion", "m1"):
        assert word in line
    assert "\n" not in line
    assert found["status"][0] is False
    for word in words:
        assert word in found["status"][1]


def always(minion):
    minion.module("code", CODE)
    minion.start()
    jobs = run_jobs(minion)
    return {"jobs": jobs, "counts": minion.counts(), "reasons": minion.reasons()}


def test_freshness_always(sides):
    """Every job rebuilds, as in Salt, and has a context of its own."""
    found = sides.saltctx(always, opts={"saltctx": {"freshness": "always"}})
    assert found["jobs"] == SALTCTX_JOBS
    assert found["counts"] == {"adopted": 0, "rebuilt": 3, "partial": 0, "reloaded": 0, "fallback": 0}
    assert found["reasons"] == ["freshness is always"] * 3


@pytest.mark.parametrize(("opts", "why"), [
    ({"multiprocessing": True}, "multiprocessing is on: each job is a process of its own"),
    ({"proxy": {"proxytype": "dummy"}}, "a proxy minion: not supported yet"),
])
def test_kinds_of_minion_left_to_salt(sides, opts, why):
    """Forking and proxy minions run Salt's own code, and saltctx.status says why."""
    found = sides.saltctx(jobs_and_places, opts=opts)
    assert found["jobs"] == STOCK_JOBS
    assert found["places"]["deep"] == []
    assert found["logged"] == []
    assert found["status"] == [False, why]


def switched_at_run_time(minion):
    """The flag is read from the minion's opts when a job starts."""
    minion.module("code", CODE)
    minion.start()
    found = [run_jobs(minion)]
    for value in (False, True, {"enabled": False}, {"freshness": "stat"}):
        minion.minion.opts["saltctx"] = value
        found.append(run_jobs(minion))
    return found


def test_flag_is_read_when_a_job_starts(sides):
    """A minion that had it and has it no more is as one that never had it, and back."""
    loaders = [[job[0][1] for job in jobs] for jobs in sides.saltctx(switched_at_run_time)]
    assert loaders == [["Loader"] * 3, ["LazyLoader"] * 3, ["Loader"] * 3, ["LazyLoader"] * 3, ["Loader"] * 3]


# -------------------------------------------------------------------------------- errors inside saltctx
def error_at_job_start(minion):
    from saltctx.evidence import FileEvidence

    minion.module("code", CODE)
    minion.start()
    found = {"before": run_jobs(minion)}
    changed = FileEvidence.changed

    def fail(self):
        raise RuntimeError("as the test told it to")

    FileEvidence.changed = fail
    found["during"] = run_jobs(minion)
    loads = [minion.load("code.code", number) for number in range(1, 41)]
    returns = minion.run_many(loads, 4)
    found["lost"] = sum(not ret for ret in returns)
    found["keys"] = minion.value("code.keys")
    found["counts"] = minion.counts()["fallback"]
    found["log"] = [
        [message, "as the test told it to" in cause] for name, message, cause in minion.log if "saltctx" in name
    ]
    FileEvidence.changed = changed
    found["after"] = run_jobs(minion)
    return found


def test_error_at_job_start(sides):
    """Such jobs run on Salt's own loaders with the right retcode; it is logged once, with its cause; none is lost."""
    found = sides.saltctx(error_at_job_start)
    assert found["before"] == found["after"] == SALTCTX_JOBS
    assert found["during"] == STOCK_JOBS
    assert found["lost"] == 0
    assert found["keys"] == []
    assert found["counts"] == 44
    ((line, has_cause),) = found["log"]
    assert "saltctx could not give a job of minion m1 its loaders" in line
    assert has_cause


def error_in_a_reload(minion):
    from saltctx.generation import Generations

    minion.module("code", CODE)
    minion.start()
    found = [run_jobs(minion)]
    rebuild = Generations.rebuild

    def fail(self, reason):
        raise RuntimeError("as the test told it to")

    Generations.rebuild = fail
    found += [minion.job("sys.reload_modules")["retcode"] for _ in range(2)]
    found += [len(minion.logged()), run_jobs(minion)]
    Generations.rebuild = rebuild
    return [*found, minion.job("sys.reload_modules")["retcode"], run_jobs(minion)]


def test_error_in_a_reload(sides):
    """sys.reload_modules does what it does in Salt, and later jobs are right."""
    assert sides.saltctx(error_in_a_reload) == [SALTCTX_JOBS, 0, 0, 1, SALTCTX_JOBS, 0, SALTCTX_JOBS]


def error_while_building(minion):
    """Salt's own gen_modules() fails in the middle of a rebuild: a job fails with it as on stock, the next is right."""
    minion.module("code", CODE)
    minion.module("bad", "def go():\n    return 1\n")
    minion.start()
    found = [run_jobs(minion), minion.value("bad.go")]
    import salt.loader

    matchers = salt.loader.matchers

    def fail(opts):
        raise RuntimeError("no matchers today")

    salt.loader.matchers = fail
    minion.module("bad", "def go():\n    return 22\n")
    # One edited file alone would build no loaders.
    minion.module("another", "def go():\n    return 1\n")
    try:
        found.append(minion.job("code.code", 3).get("retcode", "lost"))
    finally:
        salt.loader.matchers = matchers
    found.append(minion.value("bad.go"))
    found.append(run_jobs(minion))
    return found


def test_error_while_building(sides):
    """A failed build leaves nothing half assigned."""
    assert sides.saltctx(error_while_building) == [SALTCTX_JOBS, 1, "lost", 22, SALTCTX_JOBS]


def error_in_settling(minion):
    """What looks at the modules that a job used, after the job, fails."""
    from saltctx.hooks import minion as hook

    minion.module("code", CODE)
    minion.start()

    def fail(*args):
        raise RuntimeError("as the test told it to")

    hook.settle = fail
    return [run_jobs(minion), minion.logged()]


def test_error_after_a_job(sides):
    jobs, logged = sides.saltctx(error_in_settling)
    assert jobs == SALTCTX_JOBS
    assert len(logged) == 1


# -------------------------------------------------------------------------------- an unknown Salt
def unknown_salt(minion, how):
    import saltctx.compat as compat

    asked = []
    checks = compat.checks
    compat.checks = lambda: asked.append(1) or checks()
    if how == "signature":
        compat.SIGNATURES["salt.minion.MinionBase.gen_modules"] = "self, initial_load, context, brand_new"
    elif how == "missing":
        compat.SIGNATURES["salt.loader.lazy.LazyLoader.no_such_method"] = "self"
    else:
        compat.RELIED_ON["salt.minion.Minion._thread_return"] = ("gen_modules", "no_such_name")
    minion.module("code", CODE)
    minion.start()
    found = jobs_and_doctor(minion)
    found["asked"] = len(asked)
    return found


def jobs_and_doctor(minion):
    jobs = run_jobs(minion) + run_jobs(minion)
    doctor = minion.job("saltctx.doctor")
    return {
        "jobs": jobs, "logged": minion.logged(), "places": places(), "status": status_of(minion),
        "doctor": [doctor["retcode"], doctor["return"]["healthy"], doctor["return"]["checks"][0]],
    }


@pytest.mark.parametrize(("how", "words"), [
    ("signature", [
        "salt.minion.MinionBase.gen_modules(self, initial_load, context, brand_new)",
        "found (self, initial_load, context)",
    ]),
    ("missing", ["salt.loader.lazy.LazyLoader.no_such_method(self)", "AttributeError"]),
    ("names", ["salt.minion.Minion._thread_return uses", "does not use no_such_name"]),
])
def test_unknown_salt(sides, how, words):
    """Refused before anything is hooked, with one line that says what is not as expected; jobs run as stock."""
    found = sides.saltctx(unknown_salt, how)
    assert found["jobs"] == STOCK_JOBS * 2
    assert found["places"]["deep"] == []
    (line,) = found["logged"]
    assert "\n" not in line
    active, why = found["status"]
    assert active is False
    retcode, healthy, failed = found["doctor"]
    assert (retcode, healthy, failed["ok"]) == (1, False, False)
    assert failed["advice"]
    for word in words:
        assert word in line
        assert word in why
        assert word in failed["check"] + failed["found"]


def test_unknown_salt_is_looked_at_once(sides):
    """Jobs of a minion that was refused do not pay for the look again: the first one's, saltctx.status' and doctor's."""
    assert sides.saltctx(unknown_salt, "signature")["asked"] <= 3


# -------------------------------------------------------------------------------- the reference implementation
def on_the_reference(minion):
    minion.module("code", CODE)
    minion.start()
    jobs = run_jobs(minion)
    loads = [minion.load("code.code", number) for number in range(1, 101)]
    wrong = [
        ret for number, ret in enumerate(minion.run_many(loads, 8), 1)
        if ret.get("retcode") != number or ret["return"][0] != number
    ]
    status = minion.value("saltctx.status")
    return {
        "jobs": jobs, "wrong": wrong, "keys": minion.value("code.keys"),
        "status": [status["active"], status["implementation"], status["implementation_reason"]],
        "compiled": "saltctx._core" in sys.modules,
    }


def test_reference_implementation(sides):
    """SALTCTX_PURE=1: the same jobs without the extension, and saltctx.status says so."""
    found = sides.saltctx(on_the_reference, environment={"SALTCTX_PURE": "1"})
    assert found == {
        "jobs": SALTCTX_JOBS, "wrong": [], "keys": [],
        "status": [True, "reference", "SALTCTX_PURE is set in the environment"], "compiled": False,
    }


def test_extension(sides):
    found = sides.saltctx(on_the_reference)
    assert found["status"] == [True, "C", None]
    assert found["compiled"] is True
    assert found["jobs"] == SALTCTX_JOBS


# -------------------------------------------------------------------------------- on the path, but not installed
def only_on_the_path(minion):
    path, sys.path = sys.path, []
    try:
        type(minion)("saltctx")
    except importlib.metadata.PackageNotFoundError as exc:
        return exc.name
    finally:
        sys.path = path


def test_minion_of_the_benchmarks_is_not_stock_unnoticed(sides):
    """Without its entry point no job would run on saltctx, and the figures would be stock Salt's."""
    assert sides.saltctx(only_on_the_path) == "saltctx"
