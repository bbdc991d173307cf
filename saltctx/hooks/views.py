"""What a job reads in ``__opts__``, ``__pillar__`` and ``__grains__`` of loaders that it shares with others."""

from ..core import current_job
from .optsdict import job_dict, job_opts, unwrapped


def _test_of(loader, job):
    """Where the loader's ``opts["test"]`` stands for this job: a (mapping, key) to read and write."""
    if job is None or not loader.shared:
        return loader.opts, "test"
    _, views = job.views.setdefault(id(loader), (loader, {}))
    tests = views.setdefault("test", {})
    if "test" not in tests and "test" in loader.opts:
        tests["test"] = loader.opts["test"]
    return tests, "test"


def _module_opts_in_use(loader, func, job):
    """The ``__opts__`` that ``func``'s module reads in this loader and job, if it read any yet."""
    owner = getattr(func, "__module__", None)
    if job is None or not loader.shared:
        return loader.module_opts.get(owner)
    views = job.views.get(id(loader))
    return views[1].get(("__opts__", owner)) if views is not None else None


def before_call(loader, func):
    """Salt makes ``__opts__["test"]`` of the module a bool from the loader's, at each call."""
    job = current_job()
    opts = _module_opts_in_use(loader, func, job)
    if opts is not None:
        tests, key = _test_of(loader, job)
        if key in tests:
            opts[key] = tests[key] is not False


def after_call(loader, func):
    """Salt takes a changed ``__opts__["test"]`` of the module over into the loader's."""
    job = current_job()
    opts = _module_opts_in_use(loader, func, job)
    if opts is not None:
        tests, key = _test_of(loader, job)
        if key in tests:
            tests[key] = opts[key]


def view_opts(loader, value):
    """A job's own opts over those of a shared loader or of one of its modules."""
    opts = job_opts(value, loader._minion_data)
    if str(getattr(value, "_name", "")).startswith("module:") and "test" in loader.opts:
        # Nobody else has these opts yet: no lock, and no note of a change.
        opts._local["test"] = _test_of(loader, current_job())[0]["test"] is not False
    return opts


def view_dict(name):
    """A job's own view of the pillar or grains of a shared loader: one for all loaders that share them."""

    def view(loader, value):
        if not isinstance(value, dict):
            return value
        shared = unwrapped(value)
        _, views = current_job().views.setdefault(id(shared), (shared, {}))
        if name not in views:
            views.setdefault(name, job_dict(shared, name))
        return views[name]

    return view
