"""The configuration of the documentation site: ``make docs-site`` builds it from docs/ with Sphinx.

The pages are Markdown that also reads well without the site, so links are relative paths of files. Links that leave docs/ lead to
files of the repository, which are copied into the site.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

project = "Asterism"
author = "The Asterism maintainers"
copyright = author
version = release = metadata.version("asterism")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "reference"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/README.md", "decisions/historical/*"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(json|pyspark|pyarrow|sqlalchemy)\..*")
]  # other projects, to which there are no links

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # some pages have several headings of the first level

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autoclass_content = "class"
add_module_names = False
python_use_unqualified_type_names = True


html_theme = "furo"
html_title = "Asterism"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_favicon = str(ROOT / "src" / "asterism" / "console" / "page" / "icon.svg")
html_search_scorer = str(HERE / "static" / "search_order.js")
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
