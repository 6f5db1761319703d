"""A decoder on a GPU as the runner sees it: decodes captured whole, other steps in pieces where it pays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from penstock.engine.gpu import cache as paged
from penstock.engine.gpu.decoder import GpuDecoder
from penstock.engine.gpu.decodes import Decodes
from penstock.engine.gpu.graphs import Capturer, Graphs
from penstock.engine.gpu.inputs import Layout, RowBuffers, Scores, mixed_step
from penstock.engine.gpu.kernels.compiling import rehearsal
from penstock.engine.gpu.kernels.decode_attention import MOST_SPLITS, Workspace, workspace
from penstock.engine.gpu.kernels.sampling import draw
from penstock.engine.gpu.pieces import Pieces, worthwhile_rows
from penstock.engine.gpu.sampling import GpuDrawer
from penstock.engine.layers.sampler import Drawer
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step
from penstock.engine.transfer import finish

# Beside what a step and slots were seen to need: captured graphs, what prompts behind a long context widen of
# a cache in eight bits, and pieces that the allocator cannot use.
SPARE_BYTES = 768 << 20
_SHORT_ROWS = 512  # up to here rows are normed by other kernels than long chunks'


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
        self._block_size = self._scratch = self._positions = self._max_rows = 0
        self._room: Workspace | None = None
        self._decodes: Decodes | None = None
        self._pieces: Pieces | None = None

    @property
    def weight_bytes(self) -> int:
        return sum(matrix.nbytes for matrix in self._decoder.matrices)

    @property
    def weight_count(self) -> int:
        return sum(matrix.count for matrix in self._decoder.matrices)

    def open(self, room: Room) -> None:
        self._prepare(room.max_model_len)
        self._block_size, self._max_rows = room.block_size, room.max_rows
        # One block more than the scheduler knows of: padding is written there.
        self._scratch = room.num_blocks * room.block_size
        self._cache = self._allocate(self.config.num_layers, room.num_blocks + 1, room.block_size)
        self._room = self._decodes = self._pieces = None

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
        step = Step([0], [0], [max_rows], [range(blocks)])
        with rehearsal(self.device):
            self._compute_largest(step, slots, max_running)
        self._compute_largest(step, slots, max_running)
        finish(self.device)
        needed = torch.cuda.max_memory_allocated(self.device) - before
        self._cache, self._room = [], None
        del layer, slots
        torch.cuda.empty_cache()
        # Steps that are captured have memory of their own.
        return needed + needed * self._captured_rows(max_rows) // max_rows + SPARE_BYTES

    def _compute_largest(self, step: Step, slots: Slots, draws: int) -> None:
        hidden = self.forward(step, slots)
        if self.config.has_head:
            self._draw_alone(hidden[:draws], slots)

    def _draw_alone(self, hidden: Tensor, slots: Slots) -> None:
        """As a step draws in which somebody wants everything: of logits in float32 too, and filtered."""
        logits = self.logits(hidden)
        wide = logits.float()
        rows = torch.arange(hidden.shape[0], dtype=torch.int32, device=self.device)
        tokens = torch.zeros(hidden.shape[0], dtype=torch.int64, device=self.device)
        # Of the former: kernels for the latter are compiled when somebody wants them.
        draw(logits, slots.parameters, rows, rows, filtered=True, out=tokens)
        self.drawer.logprobs(wide, tokens.clamp_(min=0), 0)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        paged.copy_blocks(self._cache, copies)

    def forward(self, step: Step, slots: Slots) -> Tensor:
        layout = Layout.of(step)
        buffers = None if self._pieces is None else self._pieces.buffers(layout.rows)
        inputs, attention = mixed_step(
            layout,
            slots,
            self._cache[0],
            self._scores,
            self._workspace(slots),
            RowBuffers.of(layout.rows, self.device) if buffers is None else buffers,
            block_size=self._block_size,
            scratch=self._scratch,
        )
        if self._pieces is not None and buffers is not None:
            return self._pieces.forward(inputs, layout.rows, attention)
        return self._decoder.forward(inputs, self._cache, attention)

    def decode(self, step: Step, slots: Slots) -> Tensor:
        assert self._decodes is not None, "the runner makes ready first"
        return self._decodes.run(step)

    def _captured_rows(self, max_rows: int) -> int:
        """Up to how many rows steps with chunks of prompts are captured."""
        if {"graphs", "pieces"} & set(self._without):
            return 0
        layer = self._decoder.layers[0]
        weights = layer.qkv.count + layer.attention_output.count + layer.gate_up.count + layer.down.count
        return worthwhile_rows(weights, max_rows)

    def make_ready(self, slots: Slots) -> None:
        capturer = None if "graphs" in self._without else Capturer()
        self._decodes = Decodes(
            self._decoder,
            self._cache,
            slots,
            self._scores,
            self._workspace(slots),
            block_size=self._block_size,
            scratch=self._scratch,
            graphs=None if capturer is None else Graphs(capturer.capture),
            shares="shared_prefix" not in self._without,
        )
        # Kernels read weights before the kernel ahead of them is done; it must not be one that makes them.
        finish(self.device)
        with rehearsal(self.device):
            self._warm_up(slots)
        self._warm_up(slots)
        captured_rows = self._captured_rows(self._max_rows)
        if capturer is not None and captured_rows:
            self._pieces = Pieces(self._decoder, self._cache, capturer.capture_pieces, captured_rows)
            # The largest first: smaller ones find room in its memory, but not the other way round.
            self._compute_for_nobody(captured_rows, slots)

    def _warm_up(self, slots: Slots) -> None:
        """Compute for nobody, so that no request waits for a kernel to be compiled."""
        assert self._decodes is not None
        if self.config.has_head:
            self._decodes.warm_up()
        # Short chunks have other kernels than the long one of the profile.
        for rows in (2, _SHORT_ROWS):
            self._compute_for_nobody(min(rows, self._max_rows), slots)

    def _compute_for_nobody(self, rows: int, slots: Slots) -> None:
        """Prompts in the last slot, which is nobody's. They write to block 0, which nobody has yet."""
        nobody, longest = slots.tokens.shape[0] - 1, min(rows, self._positions)
        counts = [longest] * (rows // longest) + ([rows % longest] if rows % longest else [])
        one = [nobody] * len(counts)
        self.forward(Step(one, [0] * len(counts), counts, [[0]] * len(counts), wanted=[0]), slots)

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
                rows,
                self.config.num_heads,
                self.config.head_dim,
                MOST_SPLITS,
                self.device,
                longest=self._positions,
                windows={layer.window for layer in self._decoder.layers},
            )
        return self._room
