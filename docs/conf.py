"""How the site is built: `make docs`. Warnings are errors, and every code cell is executed."""

import logging
import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent

# Pages show the library of this folder, in this process and in the kernels of code cells.
sys.path[:0] = [str(ROOT / "src"), str(HERE / "_extensions")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])
)
# One thread for each kernel: two are executed at a time, and small models gain nothing by more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Kernels of Jupyter say on stderr that frozen modules slow a debugger down. Nobody debugs here.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

from jupyter_client.manager import KernelManager  # noqa: E402
from sphinx.deprecation import RemovedInNextVersionWarning  # noqa: E402

import einet  # noqa: E402

# sphinx-autodoc-typehints calls what a later Sphinx will not have.
warnings.filterwarnings("ignore", category=RemovedInNextVersionWarning)
warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module="sphinx")

project = "einet"
author = copyright = "The einet authors"
version = release = einet.__version__

extensions = [
    "mathml",
    "myst_nb",
    "our_names",
    "repository_links",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",
    "sphinx_copybutton",
]
nitpicky = True
# Every name of ours that is spoken of has to exist (`our_names`). Names of others are links where
# one of the inventories below knows them, and plain words otherwise.
nitpick_ignore_regex = [("py:.*", r"(?!einet\.).*"), ("py:.*", r"einet\.(.*\.)?_.*")]

# Kernels talk to nobody else, and do not announce themselves.
KernelManager.transport_encryption.default_value = "auto"
logging.getLogger("traitlets").setLevel(logging.WARNING)

# -- Pages ---------------------------------------------------------------------------------------

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4  # so that links to headings work as they do in the repository
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_output_stderr = "error"  # a warning on a page is a mistake of the page
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables that code cells write

# -- Reference -----------------------------------------------------------------------------------

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_inherit_docstrings = True
autosummary_generate = False  # pages of the reference are written by hand, and a test counts names
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of dataclasses are members already
typehints_fully_qualified = False
always_document_param_types = True
typehints_defaults = "comma"

# The inventories of others are committed, and small: the names that our signatures have. They are
# of version 1 of the format, which is plain text, so that the site is built without a network and
# a new name is one line. `tests/docs/test_inventories.py` holds that each name exists.
intersphinx_mapping = {
    "numpy": ("https://numpy.org/doc/stable/", "inventories/numpy.txt"),
    "python": ("https://docs.python.org/3/", "inventories/python.txt"),
    "sklearn": ("https://scikit-learn.org/stable/", "inventories/sklearn.txt"),
    "torch": ("https://docs.pytorch.org/docs/stable/", "inventories/torch.txt"),
}

# -- HTML ----------------------------------------------------------------------------------------

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"einet {release}"
html_static_path = ["_static"]
html_css_files = ["einet.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
