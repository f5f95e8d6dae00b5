# %% [markdown]
# # Lab 20: what goes over the wire
#
# Ranks are threads here, and a wire between them writes down who sent how many bytes to whom. What is
# sent, to whom and when is decided by your part.

# %%
import numpy as np
import torch

from yaie.core.threaded_ranks import Wire
from yaie.explore import draw, load

part = load("tensor_parallel")["tensor_parallel"]
naive = __import__(f"{part.__name__}.naive", fromlist=["EachToAll"])

# %% [markdown]
# ## A ring, step by step
#
# Four ranks all-reduce a tensor of 4,096 numbers. Left: the bytes that each rank sends in each step, by
# your `Ring`. Right: from whom to whom, in all steps together. How many steps are there, and why does
# the right picture have one entry in each row? Which of the steps belong to the reduce-scatter?

# %%
ranks = 4
ring = Wire(ranks)
ring.run(lambda link: part.Ring(link).all_reduce(torch.ones(4096)))
steps = 1 + max(sent.step for sent in ring.log)
by_step, by_pair = np.zeros((ranks, steps)), np.zeros((ranks, ranks))
for sent in ring.log:
    by_step[sent.source, sent.step] += sent.size
    by_pair[sent.source, sent.to] += sent.size
fig, axes = draw.figure(9, 2.8, 1, 2, width_ratios=[3, 2])
for ax, numbers, below in ((axes[0], by_step, "step"), (axes[1], by_pair, "to rank")):
    ax.imshow(numbers, cmap=draw.WEIGHTS, vmin=0, vmax=by_pair.max(), aspect="auto")
    for (row, column), size in np.ndenumerate(numbers):
        if size:
            ink = draw.PAPER if size > by_pair.max() / 2 else draw.INK
            ax.text(column, row, f"{size / 1024:g}", ha="center", va="center", color=ink)
    ax.set(xticks=range(numbers.shape[1]), yticks=range(ranks), xlabel=below)
axes[0].set(ylabel="from rank", title="KiB sent by each rank in each step")
axes[1].set(title="KiB from rank to rank")
draw.show(fig)

# %% [markdown]
# ## More ranks
#
# Bytes that a rank sends in an all-reduce of 64 KiB: by your ring, and by `naive.EachToAll`, in which
# each rank sends everything to all others. Which line does the ring's approach, and never cross? With
# how many ranks do the two send the same? What does the ring need more of as the ranks become more?

# %%
sizes = range(1, 17)
sent, messages = {"your ring": [], "each to all": []}, {"your ring": [], "each to all": []}
for size in sizes:
    for name, kind in (("your ring", part.Ring), ("each to all", naive.EachToAll)):
        wire = Wire(size)
        wire.run(lambda link, kind=kind: kind(link).all_reduce(torch.ones(16_384)))
        sent[name].append(max(wire.sent_by(rank) for rank in range(size)) / 2**10)
        messages[name].append(sum(one.source == 0 for one in wire.log))
fig, axes = draw.figure(9, 3, 1, 2)
for ax, numbers in ((axes[0], sent), (axes[1], messages)):
    for (name, line), colour in zip(numbers.items(), draw.PALETTE, strict=False):
        ax.plot(sizes, line, "o-", color=colour, label=name, markersize=4)
axes[0].axhline(128, color=draw.GREY, linestyle=":")
axes[0].set(xlabel="ranks", title="KiB that a rank sends", ylim=(0, 400))
axes[1].set(xlabel="ranks", title="tensors that a rank sends")
axes[0].legend()
draw.show(fig)

# %% [markdown]
# ## Which heads go where
#
# 16 query heads read 4 KV heads. Each row is a rank; each box a head that it holds, by your
# `share_heads`: query heads to the left, KV heads to the right. On how many ranks is each KV head once
# there are 8 of them? By what does a rank's KV cache shrink from 1 to 4 ranks, and from 4 to 8?

# %%
for size in (2, 4, 8):
    fig, ax = draw.figure(9, 0.35 * size + 0.5)
    draw.board(ax, 21, size, f"{size} ranks")
    for rank in range(size):
        queries, keys = part.share_heads(16, 4, rank, size)
        for head in queries:
            draw.box(ax, head, rank, head, draw.SKY)
        for head in keys:
            draw.box(ax, 17 + head, rank, head, draw.ORANGE)
    draw.name_rows(ax, [f"rank {rank}" for rank in range(size)])
    draw.show(fig)

# %% [markdown]
# ## One token, or all logits
#
# A step of 32 rows, a vocabulary of 32,000. Bytes that a rank sends for the logits of all tokens
# (`gather`), and for the best token alone (`arg_max`), both over your ring. What would a vocabulary of
# 128,000 change in either?

# %%
rows, vocab = 32, 32_000
logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0))
best = logits.argmax(dim=1)
lines = []
for size in (2, 4, 8):
    told = []
    for name in ("gather", "arg_max"):

        def work(link, name=name):
            held = part.share(vocab, link.rank, link.size)
            mine = logits[:, held.start : held.stop].contiguous()
            return getattr(part.VocabLogits(vocab, part.Ring(link)), name)(mine)

        wire = Wire(size)
        results = wire.run(work)
        told.append(f"{name} {max(wire.sent_by(rank) for rank in range(size)):>9,} bytes")
    right = all(torch.equal(tokens, best) for tokens in results)
    lines.append(f"{size} ranks: {told[0]}, {told[1]}; all ranks have the best tokens: {right}")
print(*lines, sep="\n")

# %% [markdown]
# ## A pipeline fills and drains
#
# Four stages pass on microbatches, by your `Pipeline`. Each takes as long as it has tokens, and a stage
# begins when its input is there and it has finished the one before. Above: a step of 32 tokens as one
# microbatch; below: cut into four by your `microbatches`. How much of the time do the stages stand
# idle, and what would 32 microbatches do to it?

# %%
stages = 4
tokens = [5, 1, 1, 1, 8, 1, 3, 4, 1, 1, 2, 4]
fig, axes = draw.figure(9, 4, 2, 1)
for ax, count in zip(axes, (1, 4), strict=True):
    wire = Wire(stages)
    cut = part.Pipeline(type("Link", (), {"rank": 0, "size": stages})()).microbatches(tokens, count)
    lengths = [sum(tokens[row] for row in run) for run in cut]
    ends = {}

    def work(link, lengths=lengths, ends=ends):
        free = [0.0]

        def compute(index, given):
            # A tensor of one number for each token: the time at which it left the stage before.
            begin = max(free[0], 0.0 if given is None else float(given[0]))
            free[0] = begin + lengths[index]
            ends[link.rank, index] = (begin, free[0])
            return torch.full((lengths[index],), free[0])

        return part.Pipeline(link).run(lengths, compute, torch.empty)

    wire.run(work)
    for (stage, number), (begin, end) in sorted(ends.items()):
        colour = draw.PALETTE[number % len(draw.PALETTE)]
        ax.barh(stage, end - begin, left=begin, color=colour, edgecolor=draw.PAPER)
        ax.text(
            (begin + end) / 2, stage, number, ha="center", va="center", color=draw.ink_on(colour)
        )
    last = max(end for _, end in ends.values())
    idle = 1 - sum(tokens) / last
    ax.set(xlim=(0, 130), yticks=range(stages), ylabel="stage")
    ax.set(title=f"microbatches of {lengths} tokens: {last:g} in all, each stage idle {idle:.0%}")
    ax.invert_yaxis()
axes[1].set(xlabel="time, in tokens of one stage")
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. All-reduce 10 numbers on 4 ranks in the first picture. Which rank sends most, and why?
# 2. Give the third picture 6 KV heads, on 3, 4 and 6 ranks. What does your `share_heads` say to 4?
# 3. Make one row of the last picture a prompt of 64 tokens. What can `microbatches` still do, and what
#    would the scheduler of lab 6 have done before?
