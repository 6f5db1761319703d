"""A chat template of the user's own, in place of the model's."""

from __future__ import annotations

from pathlib import Path

from jinja2 import TemplateError, TemplateSyntaxError

from penstock.errors import ConfigError
from penstock.hub.regular import open_regular
from penstock.text.sandbox import MAX_SOURCE, compile_template

_LONGEST_CHARACTER = 4  # bytes, in UTF-8


def template_from(value: str | Path) -> str:
    """The template that `value` is, or that is in the file it names; checked either way."""
    if isinstance(value, str) and ("{" in value or "\n" in value):
        _check(value, "The chat template")
        return value
    return read_template(value)


def read_template(value: str | Path) -> str:
    """The template in a file. Raises ConfigError for what is no file, too large, not text or not Jinja."""
    path = _path(value)
    try:
        with open_regular(path) as file:
            data = file.read(MAX_SOURCE * _LONGEST_CHARACTER + 1)
    except OSError as error:
        raise ConfigError(f"The chat template {path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # a name that no file can have
        raise ConfigError(f"The chat template {str(path)!r} cannot be read: {error}.") from None
    if len(data) > MAX_SOURCE * _LONGEST_CHARACTER:
        raise ConfigError(f"The chat template {path} has more than {MAX_SOURCE} characters; shorten it.")
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"The chat template {path} is not text in UTF-8 (byte {error.start}); save it as that."
        ) from None
    if not source.strip():
        raise ConfigError(f"The chat template {path} is empty; leave it out to use the model's own.")
    _check(source, f"The chat template {path}")
    return source


def _path(value: str | Path) -> Path:
    if value == "":
        raise ConfigError("The chat template is empty; name a file, or leave it out to use the model's own.")
    try:
        return Path(value).expanduser()
    except TypeError:
        raise ConfigError(f"The chat template must be a file's path, got {value!r}.") from None
    except RuntimeError:  # "~someone" without such a user
        raise ConfigError(f"The chat template {value} is in the home folder of nobody here.") from None


def _check(source: str, what: str) -> None:
    try:
        compile_template(source)
    except TemplateSyntaxError as error:
        reason = str(error.message).rstrip(".")
        raise ConfigError(f"{what} has an error in line {error.lineno}: {reason}.") from None
    except (TemplateError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be used: {str(error).rstrip('.')}.") from None
