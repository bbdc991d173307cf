"""The host binds again while calls are under way: each goes on with what it read."""

from harness import PURE, Dunder, Loader, LoaderContext, bind, core, loader_var, run, skip

loader = Loader({"f": lambda number: (loader_var.get(), number)}, {"__x__": {"k": 1}})
value = Dunder("__x__", LoaderContext(), {"k": 0})
left = [500]


def rebind(rng):
    # Each binding is kept for the life of the process: not without end.
    if left[0] > 0:
        left[0] -= 1
        bind(variables={"__y__": loader_var})


def use(rng):
    number = rng.random()
    assert loader["f"](number) == (loader, number)
    assert core.Job().run(lambda: loader["f"](number)) == (loader, number)
    assert loader.run(lambda: value["k"]) == 1 and value["k"] == 0


if __name__ == "__main__":
    if PURE:
        skip("bind() of the Python types is not safe against calls under way")
    run(rebind, use, use, use)
