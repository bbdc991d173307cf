"""Threads of one job, of none, and that load modules, all on one JobContext."""

import gc

from harness import core, run

context = core.JobContext()
job = core.Job("shared")
KEYS = [f"k{number}" for number in range(12)]
context.base.update({key: [key] for key in KEYS[:6]})


class Finalizer:
    def __del__(self):
        if context is not None:  # the interpreter may be going
            context.get("k0")


def use(rng):
    key = rng.choice(KEYS)
    kind = rng.randrange(14)
    if kind == 0:
        context[key] = [key]
    elif kind == 1:
        context.pop(key, None)
    elif kind == 2:
        found = context.get(key)
        assert found is None or found == [key] or isinstance(found, Finalizer)
    elif kind == 3:
        assert set(context) <= set(KEYS)
    elif kind == 4:
        assert 0 <= len(context) <= len(KEYS)
    elif kind == 5:
        for name, value in context.items():
            assert value == [name] or isinstance(value, Finalizer)
    elif kind == 6:
        context.setdefault(key, [key])
    elif kind == 7:
        try:
            context.popitem()
        except KeyError as exc:
            assert exc.args
    elif kind == 8:
        context.update({key: [key]})
    elif kind == 9:
        context.copy(), repr(context), context == {}
    elif kind == 10:
        context[key] = Finalizer()
    elif kind == 11:
        try:
            del context[key]
        except KeyError as exc:
            assert exc.args == (key,)
    elif kind == 12 and rng.random() < 0.05:
        context.clear()
    elif kind == 13 and rng.random() < 0.01:
        gc.collect()
    else:
        assert (key in context) in (True, False)


def in_job(rng):
    job.run(use, rng)


def loading(rng):
    core.loading(use, rng)


def check():
    assert dict.__len__(context) == 1
    for layer in (context.base, context.outside, job.layer):
        assert set(layer) <= set(KEYS)
    context.clear()
    job.run(context.clear)
    assert not context or context.base


if __name__ == "__main__":
    run(in_job, in_job, loading, use, check=check)
