"""All dashboards; another one is a file of its own and a line here."""

from __future__ import annotations

from typing import Final

from penstock.observe.dashboards import aio, engine, gateway, gpu, overview

BOARDS: Final = (overview.BOARD, engine.BOARD, gateway.BOARD, aio.BOARD, gpu.BOARD)
