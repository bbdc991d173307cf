"""Whether an installed wheel is whole: run it in an environment that has the wheel and nothing else.

usage: python check_wheel.py WHEEL
"""

import sys
import zipfile
from importlib import metadata, resources
from pathlib import Path


def main(wheel: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    extensions = [name for name in names if Path(name).suffix in (".so", ".pyd")]
    assert len(extensions) == 1, extensions
    # Salt takes any extension module in a loader directory for one of its own modules.
    assert Path(extensions[0]).parent == Path("saltctx"), extensions
    for needed in ("saltctx/py.typed", "saltctx/_core.pyi", "saltctx/modules/saltctx.py"):
        assert needed in names, f"{needed} is not in the wheel"
    assert not [name for name in names if name.startswith(("src/", "tests/", "bench/"))]

    import saltctx
    import saltctx._core

    assert "site-packages" in str(resources.files(saltctx)), "not the installed one"
    assert metadata.version("saltctx") == saltctx.__version__
    assert not [name for name in sys.modules if name.partition(".")[0] == "salt"], "importing saltctx imports Salt"
    needs = [need for need in metadata.requires("saltctx") or [] if "extra ==" not in need]
    assert not needs, f"pip would bring {needs} next to a packaged Salt"
    (entry,) = [entry for entry in metadata.entry_points(group="salt.loader") if entry.name == "saltctx"]
    assert entry.value == "saltctx.activation:loader_dirs"
    print(f"{Path(wheel).name}: whole")


if __name__ == "__main__":
    main(*sys.argv[1:])
