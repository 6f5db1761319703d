"""Model files: find, fetch, verify them, and read the headers of GGUF and safetensors.

Knows file formats and download sources; must not know torch, tokens' meaning, requests or HTTP serving.
`resolve` turns what a user typed into `ModelFiles`; importing this package is cheap.
"""

from penstock.hub.files import ModelFiles, Progress, home
from penstock.hub.resolve import resolve

__all__ = ["ModelFiles", "Progress", "home", "resolve"]
