"""Loaded functions that threads share: called, looked at, marked, filled, dropped."""

import gc
import weakref

from harness import Loader, bind, core, run


def func(number):
    """The function."""
    return number


func.__outputter__ = "nested"
loader = Loader({"f": func})
shared = []
refs = []


def use(rng):
    each = shared[rng.randrange(len(shared))]
    number = rng.random()
    kind = rng.randrange(9)
    if kind == 0:
        assert each.__name__ == "func" and each.__doc__ == "The function." and each.__wrapped__ is func
    elif kind == 1:
        assert vars(each)["__outputter__"] == "nested" and vars(each)["name"] == "f"
    elif kind == 2:
        each.mark = number
        assert isinstance(each.mark, float)
    elif kind == 3:
        assert not hasattr(each, "missing") and each.__outputter__ == "nested"
    elif kind == 4:
        shared[rng.randrange(len(shared))] = loader["f"]
    elif kind == 5:
        job = core.Job()
        carried = job.run(lambda: loader["f"])
        assert carried(number) == number
        refs.append(weakref.ref(job))
        del refs[:-8]
    elif kind == 6:
        loader._dict = {"f": func}
    elif kind == 7 and rng.random() < 0.01:
        gc.collect()
    assert each(number) == number
    assert each(number=number) == number


def check():
    shared.clear()
    gc.collect()
    assert all(ref() is None for ref in refs)


if __name__ == "__main__":
    bind()
    shared.extend(loader["f"] for _ in range(4))
    run(use, check=check)
