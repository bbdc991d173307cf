"""FileStamps under add, restamp, suspects and changing files at once."""

import os
import tempfile

from harness import core, run

directory = tempfile.TemporaryDirectory(prefix="saltctx-stress-")
stamps = core.FileStamps(0, 0)
stable = [os.path.join(directory.name, f"stable{number}") for number in range(30)]
changing = [os.path.join(directory.name, f"changing{number}") for number in range(4)]
for path in stable:
    with open(path, "w") as file:
        file.write("x")
for path in stable + changing:
    stamps.add(path)


def add(rng):
    path = os.path.join(directory.name, f"absent{rng.randrange(5000)}")
    assert stamps.add(path) is False
    assert path in stamps
    stamps.restamp(rng.choice(stable))


def change(rng):
    path = rng.choice(changing)
    with open(path, "w") as file:
        file.write("x" * rng.randrange(100))
    stamps.restamp(path)
    assert path in stamps and "absent" not in stamps


def ask(rng):
    assert set(stamps.suspects() or ()) <= set(changing)
    paths = stamps.paths()
    assert paths[: len(stable)] == stable and len(set(paths)) == len(paths) <= len(stamps)


def check():
    for path in changing:
        stamps.restamp(path)
    assert stamps.suspects() is None
    os.unlink(stable[7])
    assert stamps.suspects() == [stable[7]]
    directory.cleanup()


if __name__ == "__main__":
    run(add, change, ask, ask, check=check)
