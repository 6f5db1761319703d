"""What becomes of a step that the device did not get through."""

from __future__ import annotations

import logging

logger = logging.getLogger("penstock.engine")

# A device that fails this many steps in a row will not recover by itself.
MAX_FAILED_STEPS = 3


# What a request ends with that is alone in the smallest step.
TOO_LARGE = (
    "The device has no memory to compute this request even by itself; send a shorter prompt, or lower the "
    "engine's memory_fraction, so that the cache leaves more room for a step."
)


class OutOfDeviceMemory(Exception):  # noqa: N818 (a state of the device, and no mistake of anybody's)
    """The device has no memory for a step. The step has changed nothing that computing it again would not."""


class FailedSteps:
    """Counts those in a row."""

    def __init__(self) -> None:
        self._count = 0

    def clear(self) -> None:
        """A step went well."""
        self._count = 0

    def add(self, error: Exception) -> str:
        """What the step's requests end with; the error itself once the device keeps failing."""
        # For the log only: what a device says of itself is not for clients.
        logger.error("A step failed.", exc_info=error)
        self._count += 1
        if self._count >= MAX_FAILED_STEPS:
            raise error
        return f"The engine failed while computing this request ({type(error).__name__})."


def log_shortage(error: OutOfDeviceMemory, tokens: int, sequences: int) -> None:
    """Of the device's memory, for a step of this size."""
    logger.warning(
        "The device had no memory for a step of %d tokens of %d sequences; smaller ones follow (%s).",
        tokens,
        sequences,
        error,
    )
