"""Which keys and values the chunks of a step meet, in which order, and the warp that has them copied."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

PANEL = gl.constexpr(64)  # elements of a vector that one copy takes: 128 bytes, the widest swizzle
STAGES = gl.constexpr(2)  # tiles of keys, and of values, that shared memory holds


@gluon.jit
def place(turn, work):
    """Which piece of work a program has in its `turn`. Work is sorted: every second round is dealt backwards,
    so that who got the longest of one gets the shortest of the next."""
    programs = gl.num_programs(0)
    own = gl.program_id(0)
    if turn % 2 == 1:
        own = programs - 1 - own
    return turn * programs + own


@gluon.jit
def bounds(
    piece_of_work, starts, counts, tiles, window, KV_HEADS: gl.constexpr, BLOCK_N: gl.constexpr,
    QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr, WINDOWED: gl.constexpr,
):  # fmt: skip
    """What a piece of work is: tiles of keys low ... high, without the last, none where there is nothing to
    do; those from `clear` on need a mask, and those below `inner`."""
    kv_head = piece_of_work % KV_HEADS
    piece = PIECES - 1 - piece_of_work // KV_HEADS % PIECES
    tile = piece_of_work // (KV_HEADS * PIECES)
    sequence = gl.load(tiles + 2 * tile)
    first = gl.load(tiles + 2 * tile + 1)
    count = gl.load(counts + sequence)
    start = gl.load(starts + sequence)
    stop = gl.minimum(first + TILE, count)
    first += piece * QUERIES
    seen = start + gl.minimum(first + QUERIES, stop)
    high = gl.where(first < stop, (seen + BLOCK_N - 1) // BLOCK_N, 0)
    clear = gl.minimum((start + first + 1) // BLOCK_N, high)
    low = 0
    inner = 0
    if WINDOWED:
        low = gl.maximum(start + first - window + 1, 0) // BLOCK_N
        low = gl.minimum(low, high)
        clear = gl.maximum(clear, low)
        inner = (gl.maximum(seen - window, 0) + BLOCK_N - 1) // BLOCK_N
        inner = gl.minimum(gl.maximum(inner, low), clear)
    return sequence, kv_head, first, stop, start, start + count, low, inner, clear, high


@gluon.jit
def _copy(
    source, table, last_block, tile, kv_head, full, target, KV_HEADS: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Have keys or values of one tile copied: a panel of a block at a time. Behind the sequence's last block
    that block comes again, since what the table holds there is not ours."""
    BOX: gl.constexpr = BLOCK_SIZE if BLOCK_SIZE < BLOCK_N else BLOCK_N
    mbarrier.expect(full, BLOCK_N * PADDED * 2)
    for box in gl.static_range(BLOCK_N // BOX):
        begin = tile * BLOCK_N + box * BOX
        block = gl.load(table + gl.minimum(begin // BLOCK_SIZE, last_block))
        row = (block * KV_HEADS + kv_head) * BLOCK_SIZE + begin % BLOCK_SIZE
        for panel in gl.static_range(PADDED // PANEL):
            part = target.slice(box * BOX, BOX, 0).slice(panel * PANEL, PANEL, 1)
            tma.async_copy_global_to_shared(source, [row, panel * PANEL], full, part)


@gluon.jit
def load_tiles(
    keys, values, slots, starts, counts, tiles, tables, work, table_stride, window, key_tiles, value_tiles,
    full_keys, full_values, free_keys, free_values, KV_HEADS: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr, QUERIES: gl.constexpr, PIECES: gl.constexpr,
    TILE: gl.constexpr, WINDOWED: gl.constexpr,
):  # fmt: skip
    done = 0  # tiles of keys so far: the stage is their remainder, the phase the parity of their rounds
    turns = (work + gl.num_programs(0) - 1) // gl.num_programs(0)
    for turn in range(turns):
        own = place(turn, work)
        if own < work:
            sequence, kv_head, _first, _stop, _start, length, low, _inner, _clear, high = bounds(
                own, starts, counts, tiles, window, KV_HEADS, BLOCK_N, QUERIES, PIECES, TILE, WINDOWED
            )
            table = tables + gl.load(slots + sequence).to(gl.int64) * table_stride
            last_block = (length - 1) // BLOCK_SIZE
            for back in range(high - low):
                tile = high - 1 - back
                stage = done % STAGES
                free = (done // STAGES) % 2 ^ 1
                mbarrier.wait(free_keys.index(stage), free)
                _copy(keys, table, last_block, tile, kv_head, full_keys.index(stage), key_tiles.index(stage),
                      KV_HEADS, PADDED, BLOCK_SIZE, BLOCK_N)  # fmt: skip
                mbarrier.wait(free_values.index(stage), free)
                _copy(values, table, last_block, tile, kv_head, full_values.index(stage),
                      value_tiles.index(stage), KV_HEADS, PADDED, BLOCK_SIZE, BLOCK_N)  # fmt: skip
                done += 1
