# %% [markdown]
# # Lab 1: what a sampler does to a distribution
#
# Twelve words could follow "The cat sat on the". Below, your filters decide which of them remain
# possible, and your sampler chooses. Before each picture there is a question: answer it first, then
# run the cell.

# %%
import torch

from yaie.core.batch import PenaltyBatch
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.explore import draw, load
from yaie.explore.sampling import sampling_batch

part = load("sampler")["sampler"]

WORDS = "mat sofa floor bed chair table roof keyboard fence grass moon idea".split()
LOGITS = torch.tensor([[4.0, 3.6, 3.1, 2.8, 2.8, 2.0, 1.6, 1.2, 0.4, 0.2, -1.0, -2.0]])


def bars(ax, logits, title, before=None):
    """Probabilities of one row; `before`, if given, as outlines behind them."""
    probs = logits.softmax(-1)[0]
    kept = logits[0].isfinite()
    if before is not None:
        ax.barh(WORDS, before.softmax(-1)[0], color="none", edgecolor=draw.GREY)
    ax.barh(WORDS, probs, color=draw.BLUE, height=0.6)
    for row, (prob, keep) in enumerate(zip(probs.tolist(), kept.tolist(), strict=True)):
        at = prob if before is None else max(prob, float(before.softmax(-1)[0, row]))
        ax.text(at + 0.01, row, f"{prob:.3f}" if keep else "out", va="center", fontsize=7)
    ax.set(title=title, xlim=(0, 1), xlabel="probability")
    ax.invert_yaxis()


# %% [markdown]
# ## Temperature
#
# At which of the temperatures 0.3, 1 and 3 is "idea" most likely to be sampled? Does the order of the
# words change?

# %%
fig, axes = draw.figure(9, 3, 1, 3, sharey=True)
for ax, temperature in zip(axes, (0.3, 1.0, 3.0), strict=True):
    warmed = part.filters.apply_temperature(LOGITS.clone(), torch.tensor([temperature]))
    bars(ax, warmed, f"temperature {temperature:g}")
draw.show(fig)

# %% [markdown]
# ## Three filters, one set of logits
#
# "bed" and "chair" have the same logit. How many words does `top_k = 4` leave? Which of the three
# filters would leave more words if all logits were closer together, and which could not?
#
# Outlines show what was there before; a word that was ruled out gives its probability to the rest.

# %%
fig, axes = draw.figure(9, 3, 1, 3, sharey=True)
filters = (
    ("top_k = 4", part.filters.apply_top_k(LOGITS.clone(), torch.tensor([4]))),
    ("top_p = 0.6", part.filters.apply_top_p(LOGITS.clone(), torch.tensor([0.6]))),
    ("min_p = 0.12", part.filters.apply_min_p(LOGITS.clone(), torch.tensor([0.12]))),
)
for ax, (title, left) in zip(axes, filters, strict=True):
    bars(ax, left, title, before=LOGITS)
draw.show(fig)

# %% [markdown]
# ## Penalties
#
# The prompt holds "sofa", the output so far is "mat mat roof". Which words does a repetition
# penalty touch, and which does a frequency penalty? Look at "mat" and "roof": which of the last two
# panels tells them apart?

# %%
counts = torch.zeros(1, len(WORDS))
counts[0, WORDS.index("mat")], counts[0, WORDS.index("roof")] = 2, 1
prompt = torch.tensor([[word == "sofa" for word in WORDS]])


def penalised(repetition=1.0, frequency=0.0, presence=0.0):
    """The logits after penalties; the defaults are off."""
    values = (torch.tensor([value]) for value in (presence, frequency, repetition))
    return part.filters.apply_penalties(LOGITS.clone(), PenaltyBatch(*values, counts, prompt))


fig, axes = draw.figure(9, 3, 1, 3, sharey=True)
bars(axes[0], penalised(repetition=1.5), "repetition 1.5", before=LOGITS)
bars(axes[1], penalised(frequency=0.8), "frequency 0.8", before=LOGITS)
bars(axes[2], penalised(presence=0.8), "presence 0.8", before=LOGITS)
draw.show(fig)

# %% [markdown]
# ## Draws against probabilities
#
# One call samples 5000 tokens: 5000 rows with the same logits, each a request with a seed of its own.
# How far from the probabilities may the counts lie? (A count of a word with probability p has a
# standard deviation of the square root of 5000 p (1 - p); about one bar in twenty misses two of
# them.)

# %%
NUM_ROWS = 5000
PARAMS = SamplingParams(temperature=1.0, top_p=0.95)


def batch_of(params, seeds, steps=0):
    """A sampling batch: one request for each seed, all at the same step of their output."""
    requests = [Request(f"r{seed}", [0], params, seed=seed) for seed in seeds]
    for request in requests:
        request.token_ids += [0] * steps
    return sampling_batch(requests, len(WORDS))


drawn = part.Sampler().sample(LOGITS.repeat(NUM_ROWS, 1), batch_of(PARAMS, range(NUM_ROWS)))
share = torch.bincount(drawn, minlength=len(WORDS)) / NUM_ROWS
expected = part.filters.apply_top_p(LOGITS.clone(), torch.tensor([PARAMS.top_p])).softmax(-1)[0]
error = 2 * (expected * (1 - expected) / NUM_ROWS).sqrt()

fig, ax = draw.figure(7, 3)
ax.bar(WORDS, share, color=draw.SKY, label=f"share of {NUM_ROWS} draws")
ax.errorbar(WORDS, expected, yerr=error, fmt="D", color=draw.INK, capsize=4, markersize=4,
            label="probability, ± 2 standard deviations")  # fmt: skip
ax.set(title="top_p = 0.95", ylabel="probability")
ax.tick_params(axis="x", rotation=40)
ax.legend()
draw.show(fig)

# %% [markdown]
# ## A seed and its neighbours
#
# The same four requests sample ten tokens each: alone, and among sixty others that come and go.
# Should the two rows of a request differ? What would differ if the noise came from one generator
# for the batch?

# %%
COLOURS = draw.colours(WORDS[:7]) | dict.fromkeys(WORDS[7:], draw.GREY)


def story(seed, others):
    """Ten draws of the request with this seed, behind `others` rows of other requests."""
    words = []
    for step in range(10):
        seeds = [*range(1000 + step, 1000 + step + others), seed]
        batch = batch_of(SamplingParams(), seeds, step)
        words.append(WORDS[int(part.Sampler().sample(LOGITS.repeat(len(seeds), 1), batch)[-1])])
    return words


fig, ax = draw.figure(8, 3.4)
draw.board(ax, 20, 8, "ten draws of each request, from left to right")
for index, seed in enumerate((7, 8, 9, 2**40 + 7)):
    for half, others in enumerate((0, 60)):
        row = 2 * index + half
        name = f"seed {seed}" if seed < 2**32 else "seed 2⁴⁰ + 7"
        draw.name_rows(ax, [f"{name}, {'alone' if not others else 'in a crowd'}"], first=row + 0.45)
        for step, word in enumerate(story(seed, others)):
            draw.box(ax, 2 * step, row, word, COLOURS[word], width=2, height=0.9, size=7)
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Set `temperature` to 0.001 and to 100 in the first picture. Which limit is greedy, which is a
#    fair die? Try 0: what does the filter do with it, and where does greedy happen instead?
# 2. Give `filters` a `top_p` of 0.3, just below the probability of "mat", then 0.35, just above it.
#    The word that crosses p stays: how many words do you expect?
# 3. Draw 500 and 50,000 rows instead of 5000. By what factor do the error bars shrink?
# 4. Set one logit of one row to `float("nan")` in the batch of 5000. How many of the draws are -1?
