"""LiteLLM's proxy configuration, read and written anew as a penstock.yaml.

Knows both formats' words and nothing else; whatever has no equivalent becomes a note that names it,
never its value if that could be a secret, so that nothing is dropped in silence.
"""

from penstock.config.litellm.convert import Converted, convert

__all__ = ["Converted", "convert"]
