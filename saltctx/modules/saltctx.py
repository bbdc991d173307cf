"""
Execution module of saltctx: what it does on this minion, and whether it fits this Salt.

Runs on any minion that has the package installed, switched on or not.
"""

import saltctx
import saltctx.status


def status():
    """
    What saltctx does on this minion: on or off and why, and what its jobs ran on.

    CLI Example:

    .. code-block:: bash

        salt '*' saltctx.status
    """
    return saltctx.status.status(__opts__)


def doctor():
    """
    Each check of this Salt and this minion's config, and what to do where one fails.

    The return code is 1 if a check failed.

    CLI Example:

    .. code-block:: bash

        salt-call saltctx.doctor
    """
    report = saltctx.status.doctor(__opts__)
    if not report["healthy"]:
        __context__["retcode"] = 1
    return report


def flush():
    """
    Let the next job rebuild the minion's loaders, whatever the evidence says.

    CLI Example:

    .. code-block:: bash

        salt '*' saltctx.flush
    """
    return saltctx.status.flush(__opts__["id"])
