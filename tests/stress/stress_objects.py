"""ObjectEvidence while its dicts change, and a Counter of what was seen."""

from harness import core, run


class Thing:
    pass


here = {"steady": Thing(), "swapped": Thing(), "gone": Thing()}
places = {name: (here, name, value, name) for name, value in here.items()}
steady = core.ObjectEvidence([places["steady"]])
every = core.ObjectEvidence(places.values())
asked, counted = core.Counter(), []


def swap(rng):
    here["swapped"] = rng.choice((places["swapped"][2], Thing()))
    here[f"other{rng.randrange(1000)}"] = Thing()


def remove(rng):
    if here.pop("gone", None) is None:
        here["gone"] = places["gone"][2]


def ask(rng):
    assert steady.changed() is None
    assert every.changed() in (None, "swapped", "gone")
    asked.add()
    counted.append(None)
    assert asked.value > 0


def check():
    assert asked.value == len(counted)
    here["swapped"], here["gone"] = places["swapped"][2], places["gone"][2]
    assert every.changed() is None
    here["swapped"] = None
    assert every.changed() == "swapped"


if __name__ == "__main__":
    run(swap, remove, ask, ask, check=check)
