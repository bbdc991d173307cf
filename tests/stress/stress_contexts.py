"""Nested and interleaved calls, generators and copied contexts: nothing enters a context twice."""

import contextvars

from harness import Loader, core, loader_var, run

loaders = [Loader() for _ in range(3)]


def descend(depth, rng):
    if not depth:
        return [each.parent_loader for each in loaders]
    here = loader_var.get(None)
    number = rng.randrange(len(loaders))
    found = loaders[number]["descend"](depth - 1, rng)
    assert loader_var.get(None) is here
    return found


def generate(count):
    for number in range(count):
        yield number, loader_var.get(None)


for each in loaders:
    each._dict = {"descend": descend, "generate": generate, "fail": lambda: 1 / 0}


def use(rng):
    job = core.Job()
    context = contextvars.copy_context()
    assert len(job.run(descend, rng.randrange(8), rng)) == len(loaders)
    loader = rng.choice(loaders)
    assert [number for number, _ in loader["generate"](5)] == list(range(5))
    try:
        context.run(loader["fail"])
    except ZeroDivisionError as exc:
        assert exc.__traceback__ is not None
    assert context.run(loader_var.get, None) is None
    inside = job.run(contextvars.copy_context)
    assert inside.run(core.current_job) is job and core.current_job() is None
    assert all(each.parent_loader is None for each in loaders)


if __name__ == "__main__":
    run(use)
