"""Pillar and grains that are replaced while a job begins, reads them, or builds its loaders."""

import threading
import time

LOOK = "def go():\n    return [__grains__.get('role'), __salt__['grains.get']('role'), __pillar__.get('who')]\n"
SLOW = """
    import os, time
    def slow():
        root = __opts__["root_dir"]
        if os.path.exists(root + "/wait"):
            open(root + "/waiting", "w").close()
            while os.path.exists(root + "/wait"):
                time.sleep(0.002)
        return {}
"""


def beside_slow_grains(minion, refresh, looks):
    """What a job reads before ``refresh()``, ``looks`` jobs while it computes the grains, and the next after it."""
    minion.module("look", LOOK)
    minion.module("slow", SLOW, kind="grains")
    minion.write("grains", "role: web\n")
    minion.start()
    seen = [minion.value("look.go")]
    wait = minion.write("wait", "")
    thread = threading.Thread(target=refresh)
    thread.start()
    while thread.is_alive() and not (minion.root / "waiting").exists():
        time.sleep(0.002)
    seen += [minion.value("look.go") for _ in range(looks)]
    wait.unlink()
    thread.join(30)
    return [*seen, minion.value("look.go")]


def while_grains_are_computed(minion):
    return beside_slow_grains(minion, lambda: minion.refresh_grains(role="db"), 2)


def test_grains_stay_until_the_new_ones_are_there(sides):
    """On stock a job that begins while grains are computed has none."""
    web, db = ["web", "web", None], ["db", "db", None]
    assert sides.saltctx(while_grains_are_computed) == [web, web, web, db]


def while_modules_are_refreshed(minion):
    """The same for ``Minion.module_refresh``, which computes the grains, too."""
    def refresh():
        minion.write("grains", "role: db\n")
        minion.minion.module_refresh()

    return beside_slow_grains(minion, refresh, 1)


def test_grains_stay_while_modules_are_refreshed(sides):
    web, db = ["web", "web", None], ["db", "db", None]
    assert sides.saltctx(while_modules_are_refreshed) == [web, web, db]


def grains_of_a_reader(minion):
    """A dict of grains that somebody holds, before and after new ones are there."""
    minion.write("grains", "role: web\n")
    minion.start()
    minion.job("test.ping")
    opts = minion.minion.opts
    held = opts["grains"]
    opts.mutate_key("grains", {**held, "role": "db"})
    return [held.get("role"), opts["grains"].get("role"), minion.value("grains.get", "role")]


def test_grains_are_replaced_not_emptied(sides):
    """Salt empties the dict that is there and fills it again."""
    assert sides.saltctx(grains_of_a_reader) == ["web", "db", "db"]


def while_loaders_are_built(minion):
    """The pillar, grains and resources that a refresh sets while a job's loaders are built."""
    import salt.loader

    minion.module("look", LOOK)
    minion.pillar(who="one")
    minion.write("grains", "role: web\n")
    minion.start()
    opts, serializers = minion.minion.opts, salt.loader.serializers

    def refreshed_meanwhile(*args, **kwargs):
        salt.loader.serializers = serializers
        opts["pillar"] = {"who": "two"}
        opts["grains"] = {**opts["grains"], "role": "db"}
        opts["resources"] = {"no such type": []}
        return serializers(*args, **kwargs)

    salt.loader.serializers = refreshed_meanwhile
    minion.value("look.go")
    return minion.value("look.go")


def test_refreshed_while_loaders_are_built(sides):
    """It counts for the next job, at the latest."""
    assert sides.both(while_loaders_are_built) == ["db", "db", "two"]


def refresh_before_any_job(minion):
    """The loaders that a refresh leaves which begins before the first job and ends after it has begun."""
    minion.module("slow", SLOW, kind="grains")
    minion.start()
    wait = minion.write("wait", "")
    thread = threading.Thread(target=minion.minion.module_refresh)
    thread.start()
    while thread.is_alive() and not (minion.root / "waiting").exists():
        time.sleep(0.002)
    minion.job("test.ping")
    wait.unlink()
    thread.join(30)
    functions = minion.minion.functions
    return [type(functions.pack["__context__"]).__name__, functions.shared]


def test_refresh_that_began_before_the_first_job(sides):
    """Jobs find its loaders: they must not share a plain ``__context__``."""
    assert sides.saltctx(refresh_before_any_job) == ["JobContext", True]
