"""The right core for a model: decoders generate, encoders give vectors. Both are driven alike."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from penstock.engine.config import EngineConfig, EngineInfo
from penstock.engine.pooling import unheeded
from penstock.engine.request import EngineStats, Request, TokenEvent
from penstock.engine.schedule.sequence import LogitsProcessor
from penstock.hub.fingerprint import fingerprint

logger = logging.getLogger("penstock.engine")


class Core(Protocol):
    """One model, ready. Not thread-safe: one caller submits, cancels and steps."""

    info: EngineInfo

    @property
    def has_work(self) -> bool: ...

    def submit(self, request: Request, processors: tuple[LogitsProcessor, ...] = ()) -> None:
        """Accept a request, or raise InvalidRequestError or QueueFullError."""

    def cancel(self, request_id: str, index: int | None = None) -> list[TokenEvent]:
        """Stop a request or one of its choices; their last events. Unknown ids are no error."""

    def step(self) -> list[TokenEvent]:
        """Compute one step; what it gave."""

    def stats(self) -> EngineStats: ...

    def check(self) -> None:
        """Assert that nothing was lost; meant for idle moments and tests."""


def open_core(config: EngineConfig) -> Core:
    """Load the model and say what it can do in `info`."""
    core = _core(config)
    if config.load_format != "random":
        core.info = replace(core.info, weights_sha256=fingerprint(Path(config.model)))
    if core.info.pooling is not None:
        for sentence in unheeded(Path(config.model)):
            logger.warning(sentence)
    return core


def _core(config: EngineConfig) -> Core:
    from penstock.engine.encode.weights import is_encoder

    if is_encoder(Path(config.model)):
        from penstock.engine.encode.core import EncoderCore

        return EncoderCore(config)
    from penstock.engine.core import EngineCore

    return EngineCore(config)
