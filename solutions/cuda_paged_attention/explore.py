# %% [markdown]
# # Lab 16: parts of a sequence
#
# Your kernels run on the CPU here, thread by thread, and every access is counted. A sequence of 96 keys
# lies in blocks of 16, two key heads of 64.

# %%
import torch

from yaie.core.batch import AttentionSpec
from yaie.cuda.on_cpu import recording
from yaie.explore import draw, load

lab = load("cuda_paged_attention")["cuda_paged_attention"]
paged, prefix = lab.PagedAttention(), lab.PrefixKernel()
torch.manual_seed(0)

KEYS, DIM, KV_HEADS = 96, 64, 2
table = torch.randperm(8)[:6].int()[None]
key_blocks, value_blocks = (torch.randn(8, 16, KV_HEADS, DIM) for _ in range(2))
lens = torch.tensor([KEYS], dtype=torch.int32)
spec = AttentionSpec(DIM**-0.5)


def parts_of(q, keys_per_part):
    split = lab.Split(-(-KEYS // keys_per_part), keys_per_part)
    return paged.decode_parts(q, key_blocks, value_blocks, table, lens, spec, split)


# %% [markdown]
# ## What a part knows
#
# Six parts of 16 keys, one head. The upper bars are the parts' maxima, the lower ones what each weighs
# in the whole softmax. Can the part with the largest maximum weigh less than another?

# %%
q = 2 * torch.randn(1, KV_HEADS, DIM)
parts = parts_of(q, 16)
maxima, sums = parts.stats[0, 0, :, 0], parts.stats[0, 0, :, 1]
weights = (maxima - maxima.max()).exp() * sums
fig, (above, below) = draw.figure(6, 3.6, 2, 1, sharex=True)
above.bar(range(6), maxima, color=draw.SKY)
above.set(ylabel="maximum")
below.bar(range(6), weights / weights.sum(), color=draw.BLUE)
below.set(ylabel="share of the whole", xlabel="part")
whole = paged.combine(parts, lens, spec, torch.float32)
one = paged.combine(parts_of(q, KEYS), lens, spec, torch.float32)
print(f"largest difference between six parts and one: {float((whole - one).abs().max()):.1e}")
draw.show(fig)

# %% [markdown]
# ## What heads that share a key cost
#
# 1, 2 and 4 query heads on each key head, by the naive kernel and by yours. What should happen to the
# bytes that are read when the heads double?

# %%
fig, ax = draw.figure(5.5, 3)
GROUPS = (1, 2, 4)


def naive(q):
    lab.paged_attention.naive_decode(q, key_blocks, value_blocks, table, lens, spec)


for name, run, colour, shift in (
    ("a block a head", naive, draw.ORANGE, -0.2),
    ("a block a key head", lambda q: parts_of(q, KEYS), draw.BLUE, 0.2),
):
    read = []
    for group in GROUPS:
        with recording() as launches:
            run(torch.randn(1, KV_HEADS * group, DIM))
        read.append(launches[0].global_loads.bytes / 2**20)
    places = [i + shift for i in range(len(GROUPS))]
    bars = ax.bar(places, read, 0.38, color=colour, label=name)
    ax.bar_label(bars, fmt="%.2f", fontsize=7)
ax.axhline(2 * KEYS * KV_HEADS * DIM * 4 / 2**20, color=draw.GREY, linewidth=1)
ax.set_yscale("log")
ax.set_xticks(range(len(GROUPS)), [f"{group} heads" for group in GROUPS])
ax.set(ylabel="MiB asked for", title="the grey line: keys and values, once")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## How many parts?
#
# `plan_split` for a device on which 528 thread blocks run at once, and 8 key heads. One sequence, 16 of
# them, 256: how should the curves lie to each other? Where does each of them begin to rise, and why?

# %%
fig, ax = draw.figure(5.5, 3)
lengths = [2**i for i in range(7, 18)]
for n, colour in ((1, draw.BLUE), (16, draw.GREEN), (256, draw.ORANGE)):
    counts = [lab.plan_split(n * 8, keys, 528).parts for keys in lengths]
    ax.loglog(lengths, counts, "o-", color=colour, label=f"{n} sequences", base=2)
ax.set(xlabel="keys of a sequence", ylabel="parts")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## How far a row is read
#
# Rows of 512 entries that differ from the tokens at different positions. Why are these stairs?

# %%
tokens = torch.arange(512, dtype=torch.int32)
places, read = list(range(0, 512, 32)), []
for place in places:
    row = tokens.clone()
    row[place] = -1
    with recording() as launches:
        prefix.longest_common_prefix(tokens, row[None], torch.tensor([512], dtype=torch.int32))
    read.append(launches[0].global_loads.bytes)
fig, ax = draw.figure(5.5, 2.6)
ax.step(places, read, where="post", color=draw.BLUE)
ax.set(xlabel="first difference", ylabel="bytes read", ylim=(0, None))
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Give `spec` a window of 20. How many of the six parts have keys?
# 2. Multiply `q` by 5. What becomes of the shares, and why?
# 3. Draw eight heads on each key head. And nine?
