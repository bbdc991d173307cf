"""What a state run builds beside its states, with saltctx as on stock: module directories, the local file server's cache."""

import os


# -------------------------------------------------------------------------------- salt.loader._module_dirs
def directories(minion):
    """Where loaders look, asked twice for each kind, after each change of what it hangs on."""
    minion.start()
    import salt.loader

    opts = dict(minion.minion.opts, saltctx=None)
    more = minion.root / "more"
    for name in ("modules", "_states", "resources/ssh/modules"):
        (more / name).mkdir(parents=True)
    found = []

    def look(**changes):
        for kind in ("modules", "states", "renderers", "utils"):
            for _ in range(2):
                made = salt.loader._module_dirs({**opts, **changes}, kind, tag=kind.rstrip("s"))
                found.append([str(path).replace(str(minion.root), "ROOT") for path in made])
                made.append("nobody else finds it")
        found.append(salt.loader._module_dirs({**opts, **changes}, "modules", "module", ext_type_dirs="own_dirs"))

    look()
    look(module_dirs=[str(more)])
    look(extension_modules=str(more))
    look(module_dirs=["/nowhere"], states_dirs=["/x"], module_type_dirs=["/y"])
    look(state_dirs=["/x"])
    look(state_dirs=["/y"], own_dirs=["/own"])
    look(resource_type="ssh", extension_modules=str(more))
    (more / "modules").rmdir()
    look(module_dirs=[str(more)])
    return [[str(path).replace(str(minion.root), "ROOT") for path in each] for each in found]


def test_module_directories(sides):
    found = sides.both(directories)
    assert any("ROOT/more/_states" in each for each in found)
    assert any("/own" in each for each in found)


# -------------------------------------------------------------------------------- salt.fileserver
def file_times(minion):
    """The list of file times, and the cache of hashes, after each change of the files and a state run."""
    minion.start()
    base = minion.root / "cache/roots"
    seen = []

    def run():
        minion.value("state.apply", "one")
        listed = (base / "mtime_map").read_text()
        cached = sorted(str(path.relative_to(base)) for path in (base / "hash").rglob("*") if path.is_file())
        seen.append([sorted(listed.replace(str(minion.root), "ROOT").splitlines()), cached])

    one = minion.sls("one", "a:\n  test.nop: []\n")
    os.utime(one, (1_000_000, 1_000_000))
    run()
    run()
    os.utime(one, (2_000_000, 2_000_000))
    run()
    two = minion.sls("two", "b:\n  test.nop: []\n")
    os.utime(two, (1_000_000, 1_000_000))
    minion.value("state.apply", "two")
    run()
    two.unlink()
    run()
    run()
    (base / "mtime_map").write_text("what is no list\n")
    run()
    (base / "mtime_map").unlink()
    run()
    return seen


def test_file_times_are_kept(sides):
    seen = sides.both(file_times)
    assert seen[0] == seen[1] != seen[2]
    assert len(seen[3][0]) == 2 and len(seen[4][0]) == 1


def written(minion):
    minion.sls("one", "a:\n  test.nop: []\n")
    minion.start()
    path = minion.root / "cache/roots/mtime_map"
    minion.value("state.apply", "one")
    before = path.stat().st_mtime_ns
    minion.value("state.apply", "one")
    return before == path.stat().st_mtime_ns


def test_file_times_are_not_written_again(sides):
    assert sides.saltctx(written) is True
    assert sides.stock(written) is False
