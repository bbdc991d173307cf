"""The ``saltctx:`` block of the minion config, checked and turned into :class:`Options`."""

import dataclasses
import difflib
import os

FRESHNESS = ("stat", "watch", "always")


class OptionsError(ValueError):
    """A wrong ``saltctx:`` block. The text names the key, the value, what is allowed and the file."""


@dataclasses.dataclass(frozen=True)
class Options:
    """
    What an administrator asked for.

    enabled: bool, saltctx runs the minion's jobs.
    freshness: str, how a job finds out whether the loaders are still right. ``stat``: by looking at the
    files they were made from; ``watch``: the system tells what happened to them; ``always``: it does not
    look, every job rebuilds, as in Salt.
    states: bool, state runs use saltctx's loaders; else they are left to Salt.
    """

    enabled: bool = False
    freshness: str = "stat"
    states: bool = True


OFF = Options()
ON = Options(enabled=True)


def parse(value, source="the minion config"):
    """
    The :class:`Options` that ``value`` of the key ``saltctx`` stands for.

    value: None, bool, or a mapping of the fields of Options; naming a block switches saltctx on unless
    it says ``enabled: false``. source: where the value comes from, for the error text.

    Raises OptionsError. Safe in any thread.
    """
    if value is None or value is False:
        return OFF
    if value is True:
        return ON
    if not isinstance(value, dict):
        raise OptionsError(
            f"saltctx: {value!r} in {source}: expected true, false or a block of "
            f"{_listed(_KEYS)}"
        )
    for key in value:
        if key not in _KEYS:
            close = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise OptionsError(
                f"saltctx: unknown key {key!r} in {source}: expected {_listed(_KEYS)}{hint}"
            )
    asked = {"enabled": True, **value}
    for key in ("enabled", "states"):
        if not isinstance(asked.get(key, True), bool):
            raise OptionsError(f"saltctx: {key}: {asked[key]!r} in {source}: expected true or false")
    if asked.get("freshness", Options.freshness) not in FRESHNESS:
        raise OptionsError(
            f"saltctx: freshness: {asked['freshness']!r} in {source}: expected {_listed(FRESHNESS)}"
        )
    return Options(**asked)


def disabled_by_environment():
    """Whether ``SALTCTX_DISABLE`` switches saltctx off for this process."""
    return os.environ.get("SALTCTX_DISABLE", "") not in ("", "0")


_KEYS = tuple(field.name for field in dataclasses.fields(Options))


def _listed(words):
    return ", ".join(words[:-1]) + " or " + words[-1]
