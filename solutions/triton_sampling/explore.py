# %% [markdown]
# # Lab 12: a race, a bound, and what is left of a row
#
# Everything below is drawn by your kernels, in Triton's interpreter if there is no GPU.

# %%
import os

if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined
import warnings

import torch

from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.explore import draw, load
from yaie.explore.sampling import sampling_batch

part = load("triton_sampling")["triton_sampling"]
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# An infinity on the way is meant: the interpreter's NumPy speaks of it.
warnings.filterwarnings("ignore", category=RuntimeWarning)

WORDS = "mat sofa floor bed chair table roof keyboard fence grass moon idea".split()
LOGITS = torch.tensor([[4.0, 3.6, 3.1, 2.8, 2.7, 2.0, 1.6, 1.2, 0.4, 0.2, -1.0, -2.0]])


def batch_of(params, seeds, vocab):
    """A sampling batch: one request for each seed."""
    requests = [Request(f"r{seed}", [0], params, seed=seed) for seed in seeds]
    return sampling_batch(requests, vocab, torch.device(DEVICE))


# %% [markdown]
# ## The luckiest tokens
#
# The noise of 20,000 tokens, with the largest at the right. The line is where noise must lie that has
# the Gumbel distribution; the grey points take log(1 - u) in float32. From which u on do they go wrong?
# How many tokens has a vocabulary whose luckiest one is out there?

# %%
noise = part.noise.gumbel_noise(
    torch.tensor([5], device=DEVICE), torch.tensor([0], device=DEVICE), 20_000
)[0].cpu()
ordered = noise.double().sort().values
uniform = -torch.expm1(-torch.exp(-ordered))
careless = -(-(1 - uniform.float()).log()).log()

fig, ax = draw.figure(6.5, 3)
ax.semilogx(uniform, careless, ".", color=draw.GREY, label="log(1 - u) in float32")
ax.semilogx(uniform, ordered, "-", color=draw.BLUE, label="yours")
ax.set(xlabel="u of the token", ylabel="noise", title="20,000 tokens of one row")
ax.invert_xaxis()
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Forty draws and a nucleus
#
# Forty requests draw from the same twelve words at top_p = 0.8. Which words can no request draw? What
# share of them would have been rejected in the first round?

# %%
P, REQUESTS = 0.8, 40
params = SamplingParams(temperature=1.0, top_p=P)
batch = batch_of(params, range(REQUESTS), len(WORDS))
logits = LOGITS.repeat(REQUESTS, 1).to(DEVICE)
drawn = part.Sampler().sample(logits.clone(), batch).cpu()
plain = batch_of(SamplingParams(temperature=1.0), range(REQUESTS), len(WORDS))
first = part.Sampler().sample(logits.clone(), plain).cpu()

fig, ax = draw.figure(7.5, 3)
for name, tokens, colour, shift in (
    ("first candidates", first, draw.PALE, -0.2),
    ("draws", drawn, draw.BLUE, 0.2),
):
    counts = torch.bincount(tokens, minlength=len(WORDS))
    ax.bar([x + shift for x in range(len(WORDS))], counts, width=0.4, color=colour, label=name)
probs = LOGITS.softmax(1)[0]
ax.plot(
    range(len(WORDS)), probs * REQUESTS, "D", color=draw.INK, markersize=4, label="expected of all"
)
ax.axvline(float((probs.cumsum(0) - probs < P).sum()) - 0.5, color=draw.INK, linestyle=":")
ax.set_xticks(range(len(WORDS)), WORDS, rotation=40)
ax.set(ylabel="requests", title=f"top_p = {P}: left of the dotted line")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Which chunks can matter?
#
# A row of 6,000 logits in chunks of 128, one bar for the largest of each. The dotted line is the 20th
# largest bar, the solid one your bound for top_k = 20. Why can the solid line not lie below the dotted
# one? How many chunks does anybody have to read again?

# %%
torch.manual_seed(1)
row = torch.randn(1, 6000, device=DEVICE) * 2
batch = batch_of(SamplingParams(top_k=20), [3], 6000)
scan = part.scan.scan_rows(row, batch)
bound = float(part.top_k.top_k_bounds(row, batch, scan)[0])
maxima = scan.chunk_maxima[0].cpu()

fig, ax = draw.figure(8, 2.8)
colours = [draw.BLUE if highest > bound else draw.PALE for highest in maxima.tolist()]
ax.bar(range(len(maxima)), maxima, color=colours)
ax.axhline(float(maxima.sort(descending=True).values[19]), color=draw.INK, linestyle=":")
ax.axhline(bound, color=draw.INK)
kept = int((row > bound).sum())
ax.set(xlabel="chunk", ylabel="largest logit", title=f"{kept} tokens lie above the bound")
ax.set_ylim(bottom=float(maxima.min()) - 0.5)
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Set `P` to 0.3, then to 1. In which of the two do candidates and draws differ for most requests?
# 2. Sort the row of the last picture in ascending order. How many chunks reach the bound now?
# 3. Give the third picture `top_k = 200`, more than there are chunks. Where does the dotted line go,
#    and is the solid one still right?
