"""Every error Penstock raises on purpose, each with a one-sentence message for the user.

The message says what is wrong, with which value, and what to do. Nothing here
imports anything: all rooms may use it.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root of all deliberate errors; `str(error)` is a sentence fit for a user."""


class ConfigError(PenstockError):
    """An option, environment variable or configuration file is wrong (exit code 2)."""


class ModelError(PenstockError):
    """A model cannot be found, fetched, read or run (exit code 2)."""


class InvalidRequestError(PenstockError):
    """The request itself is at fault; HTTP 400 unless a subclass says otherwise."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthError(InvalidRequestError):
    """The prompt, or prompt plus requested output, does not fit the model's context."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class QueueFullError(PenstockError):
    """The engine's waiting queue is full; try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineUnavailableError(PenstockError):
    """The engine is starting, draining, or has died."""
