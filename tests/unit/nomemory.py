"""
Let one allocation after the other fail in each scenario of leaks.py: ``python nomemory.py [SCENARIO ...]``.

What comes of it is an exception, MemoryError as a rule, or nothing: never a crash, and never a call of
ours that fails without an exception. Exit status 77 where the interpreter has no _testcapi.
"""

import contextvars
import gc
import sys

import leaks

try:
    from _testcapi import remove_mem_hooks, set_nomemory
except ImportError:
    sys.exit(77)

STEPS = 1200


def attempt(run, start):
    """What the scenario raised with the allocation number ``start`` failing, or None."""
    try:
        set_nomemory(start, start + 1)
        run()
    except BaseException as exc:
        remove_mem_hooks()
        return exc
    finally:
        remove_mem_hooks()
    return None


def is_ours(outcome):
    """Whether a function in C broke the rule that NULL comes with an exception; CPython's frames do."""
    text = str(outcome)
    return isinstance(outcome, SystemError) and text.startswith("<") and not text.startswith("<function")


def main(names):
    leaks.bind()
    sys.unraisablehook = lambda each: None
    for name in names or leaks.SCENARIOS:
        run = leaks.SCENARIOS[name]
        run()
        counts = {}
        for start in range(STEPS):
            # A copy of the context: a variable whose reset failed must not stay set for the next attempt.
            outcome = contextvars.copy_context().run(attempt, run, start)
            if is_ours(outcome):
                print(f"{name}: {outcome}")
                return 1
            kind = type(outcome).__name__
            counts[kind] = counts.get(kind, 0) + 1
        gc.collect()
        run()
        print(name, counts)
        if "MemoryError" not in counts:
            print(f"{name}: no allocation failed")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
