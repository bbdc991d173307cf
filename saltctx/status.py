"""What ``saltctx.status``, ``saltctx.doctor`` and ``saltctx.flush`` answer."""

import platform
import sys
import time
import weakref

from . import __version__, activation, compat, core, options
from .forksafe import ForkSafeLock

_minions = weakref.WeakValueDictionary()
_lock = ForkSafeLock()


def register(jobs):
    """Make the MinionJobs of a minion of this process known by its id."""
    with _lock:
        _minions[jobs.minion_id] = jobs


def status(opts):
    """
    The state of saltctx for the minion with these opts: a dict of plain values.

    ``active``: bool; ``why``: str; ``freshness``: str. ``generation``: None, or {"number", "age_seconds",
    "reason", "paths", "polled", "polled_why"}: ``polled`` of the ``paths`` are looked at by stat in each
    job; ``polled_why``: str, None if that is what the config asks for.
    """
    jobs = _minions.get(str(opts.get("id")))
    active, why = _active(opts, jobs)
    report = {
        "active": active,
        "why": why,
        "implementation": "C" if core.reason is None else "reference",
        "implementation_reason": core.reason,
        "gil": gil(),
        "versions": versions(),
        "left_to_salt": [
            "forking minions (multiprocessing: True)", "proxy minions",
        ],
        "freshness": None,
        "generation": None,
        "counts": {},
        "reasons": [],
    }
    if jobs is not None:
        report["freshness"] = jobs.freshness
        report["counts"] = jobs.report.counts()
        report["reasons"] = jobs.report.reasons()[-10:]
        generation = jobs.generations.current
        if generation is not None:
            report["generation"] = {
                "number": generation.number,
                "age_seconds": round(time.time() - generation.built, 3),
                "reason": generation.reason,
                "paths": len(generation.files),
                "polled": generation.files.polled,
                "polled_why": generation.files.reason,
            }
    return report


def doctor(opts):
    """Every check: {"healthy": bool, "checks": [{"check", "ok", "found", "advice"}]}; failed ones first."""
    checks = [_extension_check(), _options_check(opts), _mode_check(opts), *compat.checks()]
    checks.sort(key=lambda check: check["ok"])
    return {"healthy": all(check["ok"] for check in checks), "checks": checks}


def flush(minion_id):
    """Forget the current generation of a minion of this process; True if there was one."""
    jobs = _minions.get(str(minion_id))
    return jobs is not None and jobs.generations.forget()


def gil():
    """``on`` or ``off``, as it is now."""
    return "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"


def versions():
    """{"saltctx", "salt", "python"}: str."""
    return {
        "saltctx": __version__, "salt": compat.salt_version(), "python": platform.python_version(),
    }


def _active(opts, jobs):
    from .hooks.asked import left_to_salt

    if options.disabled_by_environment():
        return False, "SALTCTX_DISABLE is set in the environment"
    if activation.refusal is not None:
        return False, activation.refusal
    try:
        asked = options.parse(opts.get("saltctx"), opts.get("conf_file"))
    except options.OptionsError as exc:
        return False, str(exc)
    if not asked.enabled:
        return False, "not switched on: `saltctx: true` is not in the minion config"
    reason = left_to_salt(opts)
    if reason is not None:
        return False, reason
    if jobs is None:
        return False, "this process is no running minion (salt-call runs one job and ends): ask with `salt`"
    return True, "switched on in the minion config"


def _extension_check():
    return {
        "check": "the C extension is in use",
        "ok": core.reason is None,
        "found": "C" if core.reason is None else f"reference implementation: {core.reason}",
        "advice": "" if core.reason is None else
        "Jobs are right but slower. Install a wheel for this Python, or a C compiler and reinstall.",
    }


def _options_check(opts):
    try:
        found, ok = f"{options.parse(opts.get('saltctx'), opts.get('conf_file'))}", True
    except options.OptionsError as exc:
        found, ok = str(exc), False
    return {
        "check": "the saltctx block of the minion config is right", "ok": ok, "found": found,
        "advice": "" if ok else "Correct the key or value named; until then Salt runs its own code.",
    }


def _mode_check(opts):
    from .hooks.asked import left_to_salt

    reason = left_to_salt(opts)
    return {
        "check": "this kind of minion is one that saltctx runs",
        "ok": reason is None,
        "found": reason or "a threaded minion",
        "advice": "" if reason is None else
        "Set `multiprocessing: False` to run jobs in threads; Salt's own code runs here as before.",
    }
