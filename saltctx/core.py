"""The types in use: the C ones of :mod:`saltctx._core`, or the reference where they are not to be had."""

import os

from . import _reference

reason = None
"""Why the reference implementation runs: a str, None where the extension does."""

if os.environ.get("SALTCTX_PURE", "") not in ("", "0"):
    implementation = _reference
    reason = "SALTCTX_PURE is set in the environment"
else:
    try:
        from . import _core as implementation
    except ImportError as exc:
        implementation = _reference
        reason = f"the extension cannot be imported: {exc}"

Counter = implementation.Counter
FileStamps = implementation.FileStamps
FileWatch = implementation.FileWatch
Job = implementation.Job
JobContext = implementation.JobContext
LayeredLookup = implementation.LayeredLookup
LoadedFunction = implementation.LoadedFunction
LoaderBase = implementation.LoaderBase
NamedContext = implementation.NamedContext
ObjectEvidence = implementation.ObjectEvidence
bind = implementation.bind
current_job = implementation.current_job
loading = implementation.loading
