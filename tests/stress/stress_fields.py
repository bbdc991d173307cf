"""The fields of loaders and dunders are assigned while others look up, call and resolve through them."""

from harness import Loader, LoaderContext, core, dunder, run

context = core.JobContext()


def answer():
    return state["k"], opts.get("test")


functions = {"f": answer}
loader = Loader(functions, {"__context__": context, "__opts__": {"test": True}})
context.base["k"] = 1
state, opts = dunder("__context__", {"k": 1}), dunder("__opts__", {"test": True})


def assign(rng):
    kind = rng.randrange(9)
    if kind == 0:
        loader._dict = dict(functions, other=answer)
    elif kind == 1:
        loader.pack = {"__context__": context, "__opts__": {"test": True}}
    elif kind == 2:
        loader.inject_globals = {"x": 1} if rng.random() < 0.5 else {}
    elif kind == 3:
        loader.module_opts = {"m": {"test": True}}
    elif kind == 4:
        loader.shared = rng.random() < 0.5
    elif kind == 5:
        loader.pack_self = "__salt__" if rng.random() < 0.5 else None
    elif kind == 6:
        opts.owner = "m" if rng.random() < 0.5 else None
        opts.default = {"test": True}
    elif kind == 7:
        state.loader_context = LoaderContext() if rng.random() < 0.9 else object()
        state.default = {"k": 1}
    else:
        loader.loaded = True


def use(rng):
    if rng.random() < 0.5:
        assert core.Job().run(lambda: loader["f"]()) == (1, True)
    else:
        assert loader["f"]() == (1, True)
    assert "f" in loader and "none" not in loader and set(loader) <= {"f", "other"}
    assert loader.get("none") is None
    assert state["k"] == 1 and opts["test"] is True


def check():
    assert loader.run(answer) == (1, True)


if __name__ == "__main__":
    run(assign, use, use, use, check=check)
