"""ObjectEvidence: do dicts hold the objects that they should?"""

import gc
import weakref

import pytest

one_dict = pytest.mark.thread_unsafe(reason="all threads have the one dict of the fixture")


class Thing:
    """Equal to everything: identity must decide."""

    def __eq__(self, other):
        raise AssertionError("compared")

    __hash__ = None


@pytest.fixture
def things():
    return {name: Thing() for name in "abc"}


def evidence(core, things):
    return core.ObjectEvidence((things, name, value, f"{name} was replaced") for name, value in things.items())


def test_unchanged(core, things):
    assert evidence(core, things).changed() is None
    assert len(evidence(core, things)) == 3


def test_nothing_to_look_at(core):
    empty = core.ObjectEvidence([])
    assert empty.changed() is None and len(empty) == 0


@one_dict
def test_the_first_that_changed_says_why(core, things):
    looked_at = evidence(core, things)
    things["c"] = Thing()
    assert looked_at.changed() == "c was replaced"
    things["b"] = None
    assert looked_at.changed() == "b was replaced"


@one_dict
def test_put_back(core, things):
    looked_at = evidence(core, things)
    before = things.pop("b")
    assert looked_at.changed() == "b was replaced"
    things["b"] = before
    assert looked_at.changed() is None


def test_a_missing_key_counts_as_none(core):
    mapping = {}
    looked_at = core.ObjectEvidence([(mapping, "k", None, "why")])
    assert looked_at.changed() is None
    mapping["k"] = None
    assert looked_at.changed() is None
    mapping["k"] = 0
    assert looked_at.changed() == "why"


def test_a_value_that_is_not_there_yet(core):
    mapping = {"k": 1}
    value = Thing()
    looked_at = core.ObjectEvidence([(mapping, "k", value, "why")])
    assert looked_at.changed() == "why"
    mapping["k"] = value
    assert looked_at.changed() is None


def test_the_reason_is_handed_over_as_it_is(core):
    reason = Thing()
    assert core.ObjectEvidence([({}, "k", 1, reason)]).changed() is reason


def test_what_a_subclass_of_dict_holds_not_what_it_says(core):
    class Lying(dict):
        def get(self, *args):
            return 1

        __getitem__ = get

    assert core.ObjectEvidence([(Lying(k=1), "k", 1, "why")]).changed() is None
    assert core.ObjectEvidence([(Lying(k=2), "k", 1, "why")]).changed() == "why"


@pytest.mark.parametrize("item", [1, (), ({}, "k", 1), ({}, "k", 1, "why", 2), ([], "k", 1, "why"), ({}, 1, 1, "why")])
def test_wrong_item(core, item):
    with pytest.raises(TypeError, match=r"\(dict, str, value, reason\) was expected, not "):
        core.ObjectEvidence([({}, "k", None, "why"), item])


def test_wrong_arguments(core):
    for args in ((), (1,), ([], [])):
        with pytest.raises(TypeError):
            core.ObjectEvidence(*args)


def test_error_of_the_iterable(core):
    def places():
        yield {}, "k", 1, "why"
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        core.ObjectEvidence(places())


def test_collected(core, things):
    looked_at = evidence(core, things)
    things["self"] = looked_at
    known = weakref.ref(looked_at)
    del looked_at
    assert known() is not None
    things.clear()
    gc.collect()
    assert known() is None


def test_a_cycle_is_collected(core):
    mapping = {}
    mapping["self"] = looked_at = core.ObjectEvidence([(mapping, "self", Thing(), "why")])
    known = weakref.ref(looked_at)
    del mapping, looked_at
    gc.collect()
    assert known() is None
