"""The ``saltctx:`` block of the minion config: what it stands for, and what is said of a wrong one."""

import dataclasses

import pytest

from saltctx import options


@pytest.mark.parametrize("value", [None, False, {"enabled": False}])
def test_off(value):
    assert options.parse(value).enabled is False


@pytest.mark.parametrize("value", [True, {}, {"enabled": True}, {"freshness": "stat"}, {"states": True}])
def test_on(value):
    """``true``, or a block that does not say ``enabled: false``; the rest as if it had not been named."""
    assert options.parse(value) == options.Options(enabled=True)


@pytest.mark.parametrize("freshness", options.FRESHNESS)
def test_freshness(freshness):
    assert options.parse({"freshness": freshness}).freshness == freshness


def test_states():
    assert options.parse({"states": False}) == options.Options(enabled=True, states=False)


def test_off_keeps_the_other_keys():
    """They are checked, and come back with the block."""
    assert options.parse({"enabled": False, "freshness": "always"}) == options.Options(freshness="always")
    with pytest.raises(options.OptionsError):
        options.parse({"enabled": False, "freshness": "never"})


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.parse(True).enabled = False


def test_parse_leaves_the_block_as_it_is():
    block = {"freshness": "always"}
    options.parse(block)
    assert block == {"freshness": "always"}


@pytest.mark.parametrize("value", ["true", "yes", 1, 0, 2.5, ["stat"], ("enabled", True), b"true"])
def test_neither_bool_nor_block(value):
    with pytest.raises(options.OptionsError) as caught:
        options.parse(value, "/etc/salt/minion")
    for word in ("saltctx", repr(value), "/etc/salt/minion", "true", "false", "enabled", "freshness"):
        assert word in str(caught.value)


@pytest.mark.parametrize(("key", "hint"), [
    ("frehsness", "did you mean freshness?"), ("enable", "did you mean enabled?"), ("state", "did you mean states?"),
    ("zzz", None), (7, None), (None, None),
])
def test_unknown_key(key, hint):
    with pytest.raises(options.OptionsError) as caught:
        options.parse({key: "x"}, "/etc/salt/minion")
    text = str(caught.value)
    keys = [field.name for field in dataclasses.fields(options.Options)]
    for word in (repr(key), "unknown key", "/etc/salt/minion", *keys):
        assert word in text
    assert ("did you mean" in text) == (hint is not None)
    if hint:
        assert hint in text


@pytest.mark.parametrize(("key", "value", "allowed"), [
    ("enabled", "true", ("true", "false")), ("enabled", 1, ("true", "false")), ("enabled", None, ("true", "false")),
    ("states", "no", ("true", "false")), ("states", 0, ("true", "false")),
    ("freshness", "sometimes", options.FRESHNESS), ("freshness", True, options.FRESHNESS),
    ("freshness", None, options.FRESHNESS), ("freshness", ["stat"], options.FRESHNESS),
])
def test_wrong_value(key, value, allowed):
    with pytest.raises(options.OptionsError) as caught:
        options.parse({key: value}, "/etc/salt/minion")
    for word in (f"{key}: {value!r}", "/etc/salt/minion", *allowed):
        assert word in str(caught.value)


def test_text_is_one_line():
    for value in ("a\nb", {"a\nb": 1}, {"freshness": "a\nb"}):
        with pytest.raises(options.OptionsError) as caught:
            options.parse(value)
        assert "\n" not in str(caught.value)


def test_source_that_is_not_given():
    with pytest.raises(options.OptionsError, match="the minion config"):
        options.parse("maybe")


@pytest.mark.parametrize(("value", "disabled"), [
    ("", False), ("0", False), ("1", True), ("yes", True), ("false", True),
])
def test_disabled_by_environment(monkeypatch, value, disabled):
    """Any value but an empty one and 0."""
    monkeypatch.setenv("SALTCTX_DISABLE", value)
    assert options.disabled_by_environment() is disabled


def test_not_disabled_by_environment(monkeypatch):
    monkeypatch.delenv("SALTCTX_DISABLE", raising=False)
    assert options.disabled_by_environment() is False
