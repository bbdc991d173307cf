"""Threads of one job ask for its views and its own functions at once: each is made for all of them."""

from harness import Loader, core, dunder, run

opts = dunder("__opts__")


class Own(Loader):
    def _first_use(self, key):
        return lambda: key


loaders = [Own({"f": None}, {"__opts__": {"n": n}}) for n in range(3)]
current = [core.Job()]


def view(loader, value):
    return dict(value)


def use(rng):
    if rng.random() < 0.02:
        current[0] = core.Job()
    job = current[0]
    number = rng.randrange(3)
    loader = loaders[number]
    mine = job.run(loader.run, opts.value)
    assert mine == {"n": number} and mine is not loader.pack["__opts__"]
    assert job.run(loader.run, opts.value) is mine
    key = f"f{rng.randrange(20)}"
    loaded = job.run(lambda: loader[key])
    assert loaded() == key and job.run(lambda: loader[key].func) is loaded.func
    assert job.uses[id(loader)][0] is loader and job.views[id(loader)][0] is loader


def check():
    assert [loader.pack["__opts__"] for loader in loaders] == [{"n": n} for n in range(3)]


if __name__ == "__main__":
    run(use, check=check, views={"__opts__": view})
