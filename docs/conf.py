"""Sphinx configuration."""

import re
from pathlib import Path

project = "saltctx"
author = "the saltctx authors"
copyright = author
# Read, not imported: the documentation builds without the extension.
package = Path(__file__).parent.parent / "saltctx/__init__.py"
release = re.search(r'^__version__ = "(.+)"', package.read_text(), re.M)[1]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"saltctx {release}"
