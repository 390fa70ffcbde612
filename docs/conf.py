import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for mathml, beside this file

project = "hsa_geo"
author = "The hsa_geo authors"
copyright = "The hsa_geo authors, MIT licence"
version = release = installed_version("hsa_geo")

extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "measured"]
templates_path = ["_templates"]

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"hsa_geo {version}"
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["wrap.css"]

myst_enable_extensions = ["amsmath", "dollarmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

napoleon_numpy_docstring = False
napoleon_use_ivar = True  # "Attributes:" beside documented members would be described twice
napoleon_custom_sections = ["Shapes"]
