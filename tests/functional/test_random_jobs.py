"""
Random interleavings of changes and jobs give the same returns and retcodes on stock Salt and on saltctx.

``SALTCTX_TEST_EXAMPLES=500`` runs that many, other ones each time, and shrinks what fails; the few of a normal
run are always the same.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("SALTCTX_TEST_EXAMPLES", "0"))
NAMES = ("red", "green", "blue")
KINDS = ("plain", "asks for the flag", "asks the pillar", "named otherwise", "broken", "cannot import", "fails")

# Every version of a module has the same names: Salt executes a file where the names of the last one still are.
SOURCE = '''
import os
{top}
COUNT = 0
SEEN = []
def __virtual__():
    return {virtual}
def version():
    return [{version}, COUNT]
def count():
    global COUNT
    COUNT += 1
    SEEN.append(COUNT)
    return [COUNT, len(SEEN), {version}]
def look():
    return [
        __pillar__.get("who"), __grains__.get("role"), __opts__.get("added"), __opts__["pillar"].get("who"),
        __salt__["pillar.get"]("who", unmask=True), __utils__["tool.version"](), __opts__["test"],
    ]
def spoil(key):
    __context__[key] = 1
    __opts__["added"] = "spoilt"
    __pillar__["who"] = "spoilt"
    __grains__["role"] = "spoilt"
    SEEN.append(key)
    return sorted(name for name in __context__ if name != "retcode")
def code(retcode):
    __context__["retcode"] = retcode
    {body}
    return [retcode, sorted(name for name in __context__ if name != "retcode")]
def via(other, function):
    return [__salt__[other + "." + function](), __salt__[other + "." + function]()]
'''
VIRTUAL = {
    "asks for the flag": '"NAME" if os.path.exists(__opts__["root_dir"] + "/flag") else (False, "no flag")',
    "asks the pillar": 'bool(__pillar__.get("who") == "two")',
    "named otherwise": '"NAME" if __grains__.get("role") != "db" else "other"',
}
TOP = {"broken": "def nothing(:", "cannot import": "import a_library_that_is_not_there"}
BODY = {"fails": 'raise ValueError("as told")'}
UTIL = "def version():\n    return {version}\n"
STATE = """
def there(name):
    return {{
        "name": name, "result": None if __opts__["test"] else {version} % 2 == 0, "changes": {{}},
        "comment": "{version} " + str(__pillar__.get("who")),
    }}
"""


class Play:
    """Carries operations out on a minion; each answers what a user would see of it, or None."""

    def __init__(self, minion):
        self.minion = minion

    def operation(self, name, *args):
        return getattr(self, name)(*args)

    def edit(self, name, version, kind):
        self.minion.module(name, SOURCE.format(
            top=TOP.get(kind, ""), virtual=VIRTUAL.get(kind, "True").replace("NAME", name), version=version,
            body=BODY.get(kind, "pass"),
        ))

    def edit_util(self, version):
        self.minion.module("tool", UTIL.format(version=version), kind="utils")

    def edit_state(self, version):
        self.minion.module("own", STATE.format(version=version), kind="states")

    def remove(self, name):
        path = self.minion.root / f"ext/modules/{name}.py"
        if path.exists():
            self.minion.remove(path)

    def flag(self, on):
        if on:
            self.minion.write("flag", "")
        else:
            (self.minion.root / "flag").unlink(missing_ok=True)

    def pillar(self, who):
        self.minion.pillar(who=who)
        self.minion.refresh_pillar()

    def grains(self, role):
        self.minion.refresh_grains(role=role)

    def opts(self, value):
        if value is None:
            self.minion.minion.opts.pop("added", None)
        else:
            self.minion.minion.opts["added"] = value

    def refresh(self):
        self.minion.minion.module_refresh()

    def reload(self):
        return self._seen(self.minion.job("sys.reload_modules"))

    def job(self, name, function, *args):
        return self._seen(self.minion.job(f"{name}.{function}", *args))

    def several(self, name, retcode):
        return self._seen(self.minion.job("", _load={
            "fun": [f"{name}.code", "test.ping"], "arg": [[retcode], []],
        }))

    def state(self, test):
        ret = self.minion.job("state.single", "own.there", name="x", **({"test": True} if test else {}))
        chunks = ret.get("return")
        if isinstance(chunks, dict):
            chunks = [[chunk.get("result"), chunk.get("comment")] for chunk in chunks.values()]
        return [chunks, ret.get("retcode")]

    def listing(self):
        functions = self.minion.value("sys.list_functions")
        return [name for name in functions if name.partition(".")[0] in (*NAMES, "other")]

    @staticmethod
    def _seen(ret):
        value = ret.get("return", "LOST")
        if isinstance(value, dict):
            value = {key: _without_traceback(one) for key, one in value.items()}
        return [_without_traceback(value), ret.get("retcode"), ret.get("success")]


def _without_traceback(value):
    """A text with a traceback: what stands before it, and its last line."""
    if not isinstance(value, str) or "Traceback" not in value:
        return value
    return [value.partition("Traceback")[0], value.strip().rpartition("\n")[2]]


def play(minion, operations):
    """What was seen of each operation, beside the operation."""
    game = Play(minion)
    game.edit_util(0)
    game.edit_state(0)
    game.edit("red", 0, "plain")
    minion.pillar(who="one")
    minion.write("grains", "role: web\n")
    minion.start()
    return [[operation, game.operation(*operation)] for operation in operations]


names = st.sampled_from(NAMES)
versions = st.integers(1, 99)
changes = st.one_of(
    st.tuples(st.just("edit"), names, versions, st.sampled_from(KINDS)),
    st.tuples(st.just("edit"), names, versions, st.just("plain")),
    st.tuples(st.just("edit_util"), versions),
    st.tuples(st.just("edit_state"), versions),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("flag"), st.booleans()),
    st.tuples(st.just("pillar"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("grains"), st.sampled_from(["web", "db"])),
    st.tuples(st.just("opts"), st.sampled_from(["yes", "no", None])),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("reload")),
)
jobs = st.one_of(
    st.tuples(st.just("job"), names, st.sampled_from(["version", "count", "look"])),
    st.tuples(st.just("job"), st.sampled_from(["red", "other"]), st.just("version")),
    st.tuples(st.just("job"), names, st.just("spoil"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("job"), names, st.just("code"), st.integers(0, 5)),
    st.tuples(st.just("job"), names, st.just("via"), names, st.sampled_from(["version", "count", "look"])),
    st.tuples(st.just("several"), names, st.integers(0, 5)),
    st.tuples(st.just("state"), st.booleans()),
    st.tuples(st.just("listing")),
)
operations = st.lists(st.one_of(changes, jobs, jobs), min_size=4, max_size=14)


@pytest.mark.timeout(300 + 10 * EXAMPLES)
@settings(
    max_examples=EXAMPLES or 25, derandomize=not EXAMPLES, deadline=None, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
)
@given(operations=operations)
def test_random_jobs(sides, operations):
    found = sides.both(play, operations)
    assert len(found) == len(operations)
