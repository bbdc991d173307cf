"""FileWatch: what was changed before a question is in its answer, whichever thread takes the event."""

import os
import shutil
import tempfile
import threading

from harness import core, run

directory = tempfile.TemporaryDirectory(prefix="saltctx-stress-")
watch = core.FileWatch(0, 0)
stable = [os.path.join(directory.name, "stable", str(number)) for number in range(30)]
changing = [os.path.join(directory.name, f"changing{number}", "deep", "it") for number in range(4)]
locks = [threading.Lock() for _ in changing]
os.mkdir(os.path.dirname(stable[0]))
for path in stable:
    with open(path, "w") as file:
        file.write("x")
for path in stable + changing:
    watch.add(path)


def change(rng):
    number = rng.randrange(len(changing))
    path = changing[number]
    with locks[number]:
        if os.path.exists(path) and rng.random() < 0.3:
            shutil.rmtree(os.path.dirname(os.path.dirname(path)))
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a") as file:
                file.write("x")
        assert path in watch.suspects()
        watch.restamp(path)
    watch.add(os.path.join(directory.name, f"absent{rng.randrange(5000)}", "it"))


def ask(rng):
    assert set(watch.suspects() or ()) <= set(changing)
    paths = watch.paths()
    assert paths[: len(stable)] == stable and len(set(paths)) == len(paths) <= len(watch)


def come_and_go(rng):
    other = core.FileWatch(0, 0)
    for path in rng.sample(stable, 5):
        other.add(path)
    assert other.suspects() is None
    own = core.FileWatch(0, 0, max_watches=rng.randrange(10))
    own.add(rng.choice(stable))
    own.suspects()


def check():
    for path in changing:
        watch.restamp(path)
    assert watch.suspects() is None
    os.unlink(stable[7])
    assert watch.suspects() == [stable[7]]
    directory.cleanup()


if __name__ == "__main__":
    run(change, ask, come_and_go, change, check=check)
