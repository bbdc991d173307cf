"""
Builds ``saltctx._core``. All else is in pyproject.toml.

Environment:

SALTCTX_REQUIRE_EXTENSION=1  a failing compiler fails the build; without it saltctx falls back to Python
SALTCTX_PURE=1               no extension
SALTCTX_WERROR=1             -Wall -Wextra -Werror
SALTCTX_DEBUG=1              the same, -O0 -g3, asserts, and a check of each object after each mutation
SALTCTX_CFLAGS, SALTCTX_LDFLAGS  appended
"""

import os
import shlex
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup


def flag(name):
    return os.environ.get(name, "") not in ("", "0")


def words(name):
    return shlex.split(os.environ.get(name, ""))


def compile_args():
    if sys.platform == "win32":
        args = ["/std:c11"]
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            args.append("/experimental:c11atomics")
        return args + words("SALTCTX_CFLAGS")
    args = ["-std=c11", "-fno-strict-aliasing", "-fvisibility=hidden"]
    if flag("SALTCTX_WERROR") or flag("SALTCTX_DEBUG"):
        args += ["-Wall", "-Wextra", "-Werror"]
    if flag("SALTCTX_DEBUG"):
        args += ["-O0", "-g3", "-UNDEBUG"]
    return args + words("SALTCTX_CFLAGS")


def macros():
    found = []
    if flag("SALTCTX_DEBUG"):
        found.append(("SALTCTX_DEBUG", "1"))
    # Windows headers do not define it, so an extension there must.
    if sys.platform == "win32" and sysconfig.get_config_var("Py_GIL_DISABLED"):
        found.append(("Py_GIL_DISABLED", "1"))
    return found


def extensions():
    if flag("SALTCTX_PURE"):
        return []
    return [
        Extension(
            "saltctx._core",
            sources=sorted(glob("src/*.c")),
            depends=sorted(glob("src/*.h")),
            define_macros=macros(),
            extra_compile_args=compile_args(),
            extra_link_args=words("SALTCTX_LDFLAGS"),
            optional=not flag("SALTCTX_REQUIRE_EXTENSION"),
        )
    ]


setup(ext_modules=extensions())
