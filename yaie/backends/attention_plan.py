"""Which call of which kernel computes which sequences of a flat batch: `plan_calls`.

    decodes    one query each                   PagedAttention.decode, all in one call
    chunks     all that is neither              PagedAttention.prefill, neighbours in one call
    prompts    whole, with nothing cached       FlashAttention.forward, neighbours of one length in one

The keys of a whole prompt are at hand in one piece, and need not be fetched from blocks. Where a kernel
gathers blocks, long chunks go to FlashAttention as well, one by one. Small prompts are chunks if that
saves a call. A batch may come in any order: decodes are those at its front, and behind them the calls
follow one another as their rows do.
Nothing here looks at a tensor on the host.
"""

from dataclasses import dataclass

from torch import Tensor

from yaie.core.batch import AttentionBatch

GATHER_FROM = 64
"""Queries of a chunk for which fetching its keys into one piece pays."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Neighbours of one length: rows [start, end) of the flat batch, `length` each."""

    start: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """One chunk: rows [start, end), its `length` keys in the blocks of `table` [1, m]."""

    start: int
    end: int
    length: int
    table: Tensor


@dataclass(frozen=True, slots=True)
class Chunks:
    """Neighbouring sequences as PagedAttention.prefill takes them: rows [start, end) of the batch."""

    start: int
    end: int
    query_start_loc: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    max_query_len: int


Call = Prompts | Gathered | Chunks


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """What every layer of a step shares.

    decodes: how many sequences, at the front, ask one query. longest: keys of the longest of them.
    calls: those behind them, in the order of the batch. rest: the same as chunks in one call, for layers
        whose attention FlashAttention does not know (softcap, sinks).
    """

    slot_mapping: Tensor
    decodes: int
    longest: int
    block_tables: Tensor
    seq_lens: Tensor
    calls: list[Call]
    rest: Chunks | None

    @property
    def has_prompts(self) -> bool:
        return any(isinstance(call, Prompts) for call in self.calls)


def plan_calls(
    batch: AttentionBatch, block_size: int, gathers: bool, worth_a_call: int
) -> KernelPlan:
    """Cut a batch into decodes, chunks and prompts.

    gathers: whether long chunks may be `Gathered`. worth_a_call: rows from which FlashAttention is so
    much faster than PagedAttention that it pays for a call more in every layer.
    """
    lens, num_seqs = batch.query_lens, len(batch.query_lens)
    decodes = batch.num_decodes or 0
    if batch.num_decodes is None:
        while decodes < num_seqs and lens[decodes] == 1:
            decodes += 1
    rest = _chunks(batch, decodes, num_seqs, decodes) if decodes < num_seqs else None
    if batch.num_decodes is not None:  # which chunks there will be is not known
        calls: list[Call] = [rest] if rest else []
    else:
        pieces = _pieces(batch, decodes, gathers)
        calls = _calls(batch, pieces, _alone(pieces, worth_a_call), block_size)
    return KernelPlan(
        slot_mapping=batch.slot_mapping,
        decodes=decodes,
        longest=max(batch.kv_lens[:decodes], default=0),
        block_tables=batch.block_tables[:decodes],
        seq_lens=batch.seq_lens[:decodes],
        calls=calls,
        rest=rest,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring sequences [first, last), rows [start, end): prompts of one length, or chunks.

    candidate: whether FlashAttention may compute them in a call of their own.
    """

    first: int
    last: int
    start: int
    end: int
    is_prompt: bool
    candidate: bool


def _pieces(batch: AttentionBatch, decodes: int, gathers: bool) -> list[_Piece]:
    """The sequences behind the decodes, in their order; neighbours that go together are one piece."""
    lens, kv_lens = batch.query_lens, batch.kv_lens
    pieces: list[_Piece] = []
    row = decodes
    for i in range(decodes, len(lens)):
        is_prompt = lens[i] == kv_lens[i]
        candidate = is_prompt or (gathers and lens[i] >= GATHER_FROM)
        first, start = i, row
        row += lens[i]
        if pieces and pieces[-1].is_prompt == is_prompt and pieces[-1].candidate == candidate:
            joins = lens[i] == lens[i - 1] if is_prompt else not candidate
            if joins:
                before = pieces.pop()
                first, start = before.first, before.start
        pieces.append(_Piece(first, i + 1, start, row, is_prompt, candidate))
    return pieces


def _alone(pieces: list[_Piece], worth_a_call: int) -> list[bool]:
    """Which pieces FlashAttention computes, each in a call of its own. The others are chunks, in a call
    with their neighbours: a launch costs the host more than small prompts cost the device."""
    alone = [piece.candidate and piece.end - piece.start >= worth_a_call for piece in pieces]
    for i, piece in enumerate(pieces):
        has_company = not all(alone[max(0, i - 1) : i] + alone[i + 1 : i + 2])
        if piece.candidate and not has_company:
            alone[i] = True  # it would have a call of its own as a chunk, too
    return alone


def _calls(
    batch: AttentionBatch, pieces: list[_Piece], alone: list[bool], block_size: int
) -> list[Call]:
    """Every piece in a call, in the order of the batch."""
    calls: list[Call] = []
    run: list[_Piece] = []
    for piece, is_alone in zip(pieces, alone, strict=True):
        if not is_alone:
            run.append(piece)
            continue
        if run:
            calls.append(_chunks(batch, run[0].first, run[-1].last, run[0].start))
            run = []
        if piece.is_prompt:
            calls.append(Prompts(piece.start, piece.end, batch.query_lens[piece.first]))
        else:
            length = batch.kv_lens[piece.first]
            table = batch.block_tables[piece.first : piece.last, : -(-length // block_size)]
            calls.append(Gathered(piece.start, piece.end, length, table))
    if run:
        calls.append(_chunks(batch, run[0].first, run[-1].last, run[0].start))
    return calls


def _chunks(batch: AttentionBatch, first: int, last: int, start: int) -> Chunks:
    """Sequences [first, last), whose rows begin at `start`."""
    lens = batch.query_lens[first:last]
    starts = batch.query_start_loc[first : last + 1]
    seq_lens, tables = batch.seq_lens[first:last], batch.block_tables[first:last]
    if first:  # Triton compiles a kernel anew for addresses that are no multiples of 16
        starts, seq_lens, tables = starts - start, seq_lens.clone(), tables.clone()
    return Chunks(
        start=start,
        end=start + sum(lens),
        query_start_loc=starts,
        seq_lens=seq_lens,
        block_tables=tables,
        max_query_len=max(lens),
    )
