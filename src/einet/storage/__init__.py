"""Models in files: one safetensors file each, with nothing in it that could run.

What the file holds, name by name, is written down in :mod:`einet.storage.reference`, which reads it
with numpy alone.
"""

from einet.models.record import FORMAT, VERSION, FormatError
from einet.storage.read import load, load_metadata
from einet.storage.write import save

__all__ = ["FORMAT", "VERSION", "FormatError", "load", "load_metadata", "save"]
