"""Jobs side by side on shared loaders: each keeps its own context, retcode, loader and parent."""

import itertools

from harness import Loader, core, dunder, loader_var, run

context = core.JobContext()
context.base.update(connection={"open": True}, plain=1)
state = dunder("__context__")
numbers = itertools.count()


def leaf(name):
    assert loader_var.get() is utils and utils.parent_loader is functions
    state["leaf"] = name
    return state["retcode"]


def function(name):
    assert loader_var.get() is functions and functions.parent_loader is None
    state["retcode"] = name
    state["connection"]["mine"] = name
    found = utils["leaf"](name)
    assert found == name and state["leaf"] == name
    assert utils.parent_loader is None or utils.parent_loader is functions
    if name % 7 == 0:
        raise ValueError(name)
    return state["retcode"]


functions = Loader({"f": function}, {"__context__": context})
utils = Loader({"leaf": leaf}, {"__context__": context})


def one_job(rng):
    name = next(numbers)
    job = core.Job(str(name))

    def body():
        assert dict(context) == {"connection": {"open": True}, "plain": 1}
        try:
            assert functions["f"](name) == name
        except ValueError as exc:
            assert exc.args == (name,)
        assert context["retcode"] == name and context["connection"] == {"open": True, "mine": name}
        if rng.random() < 0.2:
            assert core.Job("inner").run(lambda: "retcode" in context) is False
        return context.pop("retcode")

    assert job.run(body) == name
    assert core.current_job() is None
    assert set(job.layer) == {"connection", "leaf"}


def check():
    assert context.base == {"connection": {"open": True}, "plain": 1}
    assert dict(context) == context.base


if __name__ == "__main__":
    run(one_job, check=check)
