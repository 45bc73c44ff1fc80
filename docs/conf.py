"""How Sphinx makes the site from these pages: `python -m docs.build`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

project = "Morpho"
author = "the Morpho developers"
html_title = "Morpho"
extensions = ["myst_parser", "sphinx_copybutton", "docs.tools.outside", "docs.tools.directive"]
exclude_patterns = ["tools", "data"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3  # links such as errors.md#coming-from-numpy-or-pytorch
suppress_warnings = ["misc.highlighting_failure"]  # transcripts hold more than Python: ir text, graphs
pygments_style, pygments_dark_style = "tango", "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
add_module_names = False
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 100

# Everything a page needs lies in the site: no fonts, scripts or pictures from elsewhere (docs/build.py looks).
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["morpho.css"]
html_favicon = html_logo = None
html_show_copyright = html_show_sourcelink = html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
    "navigation_with_keys": True,
}
