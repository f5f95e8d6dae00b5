# %% [markdown]
# # Lab 22: a matrix and its copies
#
# Nothing here needs a model. Keys, values and texts are made up; what a matrix holds of them, how chunks
# join, and where a prefix may go on is decided by your part.

# %%
import torch

from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus
from yaie.explore import draw, load

torch.manual_seed(0)
part = load("state_cache")["state_cache"]

# %% [markdown]
# ## What a matrix remembers
#
# A head with keys of 32 numbers takes in pairs of keys and values, by your `delta_step`, without decay.
# After each of 96 pairs: how far is what the first eight keys read from what they wrote? After eight
# pairs they miss by a third already. Why, if 32 keys have room? The second line adds values instead of
# replacing them, as a sum of $k v^\top$ does. Where does it grow as fast as the first, and where not?

# %%
D = 32
keys = torch.nn.functional.normalize(torch.randn(96, D), dim=1)
values = torch.randn(96, D)


def error_of_the_first(states):
    """Relative to what was written, of the first eight pairs."""
    read = keys[:8] @ states[0, 0]
    return ((read - values[:8]).norm() / values[:8].norm()).item()


def pair(at):
    """Token `at` as `delta_step` takes it: one sequence, one head."""
    one = torch.ones(1, 1)
    return keys[at].view(1, 1, D), keys[at].view(1, 1, D), values[at].view(1, 1, D), 0 * one, one


states, total = torch.zeros(1, 1, D, D), torch.zeros(1, 1, D, D)
by_rule, by_sum = [], []
for at in range(96):
    _, states = part.delta_step(*pair(at), states)
    total = total + torch.outer(keys[at], values[at])
    by_rule.append(error_of_the_first(states))
    by_sum.append(error_of_the_first(total))
fig, ax = draw.figure(8, 3)
ax.plot(range(1, 97), by_rule, color=draw.BLUE, label="your delta rule")
ax.plot(range(1, 97), by_sum, "--", color=draw.ORANGE, label="a sum")
ax.axvline(D, color=draw.PALE)
ax.set(xlabel="pairs", title="error of the first eight keys", ylim=(0, None))
ax.legend()
draw.show(fig)
for pairs in (8, 96):
    print(f"after {pairs} pairs: {by_rule[pairs - 1]:.2f} and {by_sum[pairs - 1]:.2f}")

# %% [markdown]
# ## What is left of each token
#
# Your `decays` of 24 tokens, of which the ninth lets nearly everything fade. Column s is what was
# written at token s, row t what is left of it. Why is there a dark square at the top left and one at
# the bottom right, and nearly nothing below the first?

# %%
log_decay = torch.full((24,), -0.05)
log_decay[8] = -6.0
left = part.decays(log_decay)
fig, ax = draw.figure(4.6, 4)
image = ax.imshow(left, cmap="Blues", vmin=0, vmax=1)
ax.set(xlabel="written at token", ylabel="left at token")
fig.colorbar(image)
draw.show(fig)
print(f"of token 7 at token 8: {left[8, 7]:.4f}; of token 8 at token 23: {left[23, 8]:.2f}")

# %% [markdown]
# ## Chunks of any size
#
# 256 tokens in float32, by your `delta_chunk` in chunks of 1 to 256 tokens, beside the rule token by
# token in float64. All errors are roundings. Now multiply the states by the next chunk's first decay
# when they are handed over, as if it had been forgotten: which sizes show the mistake most?

# %%
tokens, heads = 256, 2
k = torch.nn.functional.normalize(torch.randn(1, tokens, heads, 16), dim=-1)
q, v = torch.randn(1, tokens, heads, 16), torch.randn(1, tokens, heads, 16)
fade, beta = -torch.rand(1, tokens, heads) * 0.3, torch.rand(1, tokens, heads)
given = (q, k, v, fade, beta)
exact = torch.zeros(1, heads, 16, 16, dtype=torch.float64)
wanted = []
for at in range(tokens):
    out, exact = part.delta_step(*(one[:, at].double() for one in given), exact)
    wanted.append(out)
wanted = torch.stack(wanted, 1)
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def error_of(size, twice):
    """The largest difference of outputs in chunks of this size. twice: decays count twice at borders."""
    states, outs = torch.zeros(1, heads, 16, 16), []
    for first in range(0, tokens, size):
        if twice and first:
            states = states * fade[:, first].exp()[..., None, None]
        out, states = part.delta_chunk(*(one[:, first : first + size] for one in given), states)
        outs.append(out)
    return (torch.cat(outs, 1) - wanted).abs().max().item()


right = [error_of(size, False) for size in sizes]
wrong = [error_of(size, True) for size in sizes[:-1]]
fig, ax = draw.figure(8, 3)
ax.semilogy(range(9), right, "o-", color=draw.BLUE, label="your chunks")
ax.semilogy(range(8), wrong, "s--", color=draw.ORANGE, label="a decay twice at each border")
ax.set(xlabel="tokens of a chunk", title="largest error", xticks=range(9), xticklabels=sizes)
ax.legend()
draw.show(fig)
print(f"in chunks of 64: {right[6] < 1e-4}, and with the mistake {wrong[6]:.2f}")

# %% [markdown]
# ## Where a prompt may go on
#
# Twelve slots and five chats of 40 blocks, each of which keeps its state after every tenth block. Chats
# 0, 1 and 2 come first, then chat 0 asks again, then come 3 and 4. A dot is a checkpoint that your
# `Checkpoints` still has, the bar is what a match may take. Which chats have lost theirs? Why has chat
# 0 kept one, and chat 1 none?

# %%
kept = part.Checkpoints(100, 12)


def chat(name, blocks):
    """A request that computes these blocks, keeps a state after every tenth, and files them."""
    request = Request(str(name), list(range(640)), SamplingParams(), max_tokens=1)
    request.status = RequestStatus.RUNNING
    for depth in range(10, len(blocks) + 1, 10):
        if kept.save(request, blocks[depth - 1], depth) is not None:
            kept.file(blocks, blocks)


tables = [list(range(1000 * name, 1000 * name + 40)) for name in range(5)]
for name in (0, 1, 2):
    chat(name, tables[name])
kept.use(tables[0][kept.depth(tables[0]) - 1])
for name in (3, 4):
    chat(name, tables[name])
fig, ax = draw.figure(8, 2.6)
for name in range(5):
    depth = kept.depth(tables[name])
    ax.barh(name, depth, color=draw.SKY, height=0.5)
    places = [at + 1 for at, block in enumerate(tables[name]) if block in kept.filed]
    ax.plot(places, [name] * len(places), "o", color=draw.BLUE)
    print(f"chat {name}: goes on after block {depth}, checkpoints after {places}")
ax.set(xlabel="blocks", ylabel="chat", yticks=range(5), xlim=(0, 41))
ax.invert_yaxis()
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. In the first picture, draw keys that are at right angles: `keys[:32] = torch.eye(32)`. When does the
#    error begin now?
# 2. In the third picture, let nothing fade: `fade = torch.zeros(...)`. What does the mistake cost then,
#    and what would a test with such decays find?
# 3. In the last picture, keep a state after every fifth block. How deep do the five chats go now?
