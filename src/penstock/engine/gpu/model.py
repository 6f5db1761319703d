"""A decoder on a GPU as the runner sees it: any step launched piece by piece, decodes as captured graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from penstock.engine.gpu import cache as paged
from penstock.engine.gpu.decoder import GpuDecoder
from penstock.engine.gpu.decodes import MOST_SPLITS, Decodes
from penstock.engine.gpu.graphs import Capturer, Graphs
from penstock.engine.gpu.inputs import Layout, Scores, mixed_step
from penstock.engine.gpu.kernels.decode_attention import Workspace, workspace
from penstock.engine.gpu.kernels.sampling import draw
from penstock.engine.gpu.sampling import GpuDrawer
from penstock.engine.layers.sampler import Drawer
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step
from penstock.engine.transfer import finish

# Beside what a step and slots were seen to need: captured graphs, what prompts behind a long context widen of
# a cache in eight bits, and pieces that the allocator cannot use.
SPARE_BYTES = 768 << 20


class GpuModel:
    def __init__(
        self, decoder: GpuDecoder, precision: str, kv_dtype: torch.dtype, without: Collection[str] = ()
    ) -> None:
        """`without`: what is left out, to measure what it is worth."""
        self._decoder = decoder
        self.config = decoder.config
        self.device = decoder.device
        self.precision = precision
        vector = paged.vector_bytes(self.config.head_dim, kv_dtype)
        self.kv_bytes_per_token = 2 * self.config.num_layers * self.config.num_kv_heads * vector
        self.overlaps = "overlap" not in without
        self.drawer: Drawer = GpuDrawer()
        self._kv_dtype = kv_dtype
        self._without = without
        self._scores = Scores(self.config.attention_scale, self.config.attention_softcap)
        self._cache: list[paged.PagedLayer] = []
        self._block_size = self._scratch = self._positions = 0
        self._room: Workspace | None = None
        self._decodes: Decodes | None = None

    @property
    def weight_bytes(self) -> int:
        return sum(matrix.nbytes for matrix in self._decoder.matrices)

    @property
    def weight_count(self) -> int:
        return sum(matrix.count for matrix in self._decoder.matrices)

    def open(self, room: Room) -> None:
        self._prepare(room.max_model_len)
        self._block_size = room.block_size
        # One block more than the scheduler knows of: padding is written there.
        self._scratch = room.num_blocks * room.block_size
        self._cache = self._allocate(self.config.num_layers, room.num_blocks + 1, room.block_size)

    def activation_bytes(self, max_rows: int, max_running: int, block_size: int, max_len: int) -> int:
        """Seen in a step and a draw of that size; they also compile most kernels."""
        config, blocks = self.config, -(-max_rows // block_size)
        max_len = max(max_len, max_rows)
        self._prepare(max_len)
        (layer,) = self._allocate(1, blocks + 1, block_size)
        self._block_size, self._scratch = block_size, blocks * block_size
        self._cache = [layer] * config.num_layers
        self._room = None
        finish(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        # As the runner has them, and what decodes of all of them leave to each other.
        slots = Slots(max_running + 1, max_len, -(-max_len // block_size), self.device)
        slots.blocks[0, :blocks] = torch.arange(blocks, device=self.device)
        hidden = self.forward(Step([0], [0], [max_rows], [range(blocks)]), slots)
        if config.has_head:
            self._draw_alone(hidden[:max_running], slots)
        finish(self.device)
        needed = torch.cuda.max_memory_allocated(self.device) - before
        self._cache, self._room = [], None
        del layer, hidden, slots
        torch.cuda.empty_cache()
        return needed + SPARE_BYTES

    def _draw_alone(self, hidden: Tensor, slots: Slots) -> None:
        """As a step draws in which somebody wants everything: of logits in float32 too, and filtered."""
        logits = self.logits(hidden)
        wide = logits.float()
        rows = torch.arange(hidden.shape[0], dtype=torch.int32, device=self.device)
        tokens = torch.empty(hidden.shape[0], dtype=torch.int64, device=self.device)
        # Of the former: kernels for the latter are compiled when somebody wants them.
        draw(logits, slots.parameters, rows, rows, filtered=True, out=tokens)
        self.drawer.logprobs(wide, tokens.clamp_(min=0), 0)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        paged.copy_blocks(self._cache, copies)

    def forward(self, step: Step, slots: Slots) -> Tensor:
        inputs, attention = mixed_step(
            Layout.of(step),
            slots,
            self._scores,
            self._workspace(slots),
            block_size=self._block_size,
            scratch=self._scratch,
        )
        return self._decoder.forward(inputs, self._cache, attention)

    def decode(self, step: Step, slots: Slots) -> Tensor:
        assert self._decodes is not None, "the runner makes ready first"
        return self._decodes.run(step)

    def make_ready(self, slots: Slots) -> None:
        self._decodes = Decodes(
            self._decoder,
            self._cache,
            slots,
            self._scores,
            self._workspace(slots),
            block_size=self._block_size,
            scratch=self._scratch,
            graphs=None if "graphs" in self._without else Graphs(Capturer().capture),
            shares="shared_prefix" not in self._without,
        )
        # Kernels read weights before the kernel ahead of them is done; it must not be one that makes them.
        finish(self.device)
        if self.config.has_head:
            self._decodes.warm_up()
        # Short chunks may have other kernels than the long one of the profile. Nobody has block 0 yet.
        nobody = slots.tokens.shape[0] - 1
        self.forward(Step([nobody], [0], [2], [[0]]), slots)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._decoder.logits(hidden)

    def normed(self, hidden: Tensor) -> Tensor:
        return self._decoder.normed(hidden)

    def _prepare(self, positions: int) -> None:
        if positions != self._positions:
            self._decoder.prepare(positions)
            self._positions = positions

    def _allocate(self, layers: int, blocks: int, block_size: int) -> list[paged.PagedLayer]:
        config = self.config
        return paged.allocate(
            layers, config.num_kv_heads, blocks, block_size, config.head_dim, self._kv_dtype, self.device
        )

    def _workspace(self, slots: Slots) -> Workspace:
        if self._room is None:
            rows = slots.tokens.shape[0]
            self._room = workspace(
                rows, self.config.num_heads, self.config.head_dim, MOST_SPLITS, self.device
            )
        return self._room
