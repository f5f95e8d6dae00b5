# %% [markdown]
# # Lab 18: guesses and what they bring
#
# Nothing here needs a model. Texts, drafts and probabilities are made up; which tokens count, what is
# taken back and how many drafts are worth it is decided by your part.

# %%
import numpy as np

from yaie.explore import draw, load

part = load("speculative")["speculative"]

# %% [markdown]
# ## The next draft is worth less than the last
#
# Expected tokens of a step over the number of drafts, by your `Acceptance`, and what a token costs if
# each draft takes a tenth of a pass to make. Which number of drafts is best at a rate of 0.5, of 0.8,
# of 0.95? For which rate is no draft worth it, if a draft takes half a pass?

# %%


def at_rate(rate):
    """An Acceptance that has seen so many drafts that the beginning does not matter."""
    acceptance = part.Acceptance(0.999)
    for number in range(20_000):
        right = int((number + 1) * rate) - int(number * rate)
        acceptance.add(right, 1)
    return acceptance


numbers = range(13)
fig, axes = draw.figure(9, 3, 1, 2)
for rate, colour in zip((0.5, 0.8, 0.95), draw.PALETTE, strict=False):
    acceptance = at_rate(rate)
    brings = [acceptance.expected(number) for number in numbers]
    cost = [(1 + 0.1 * number) / gain for number, gain in zip(numbers, brings, strict=True)]
    axes[0].plot(numbers, brings, "o-", color=colour, label=f"{rate:g}", markersize=4)
    axes[1].plot(numbers, cost, "o-", color=colour, label=f"{rate:g}", markersize=4)
    best = part.most_worth([(acceptance, 12)], 0, lambda size: 1.0, lambda n: 0.1 * n, 12)
    axes[1].plot(best, cost[best], "s", color=colour, markersize=10, fillstyle="none")
    print(f"rate {rate:g}: {best} drafts, {1 / cost[best]:.2f} times the speed of none")
axes[0].set(xlabel="drafts", title="tokens that a step brings")
axes[1].set(xlabel="drafts", title="passes for a token; square: your most_worth", ylim=(0, 1.4))
axes[0].legend(title="rate")
draw.show(fig)

# %% [markdown]
# ## What a batch leaves of it
#
# One draft model at a rate of 0.8, one at 0.4, at no cost, with up to 8 drafts. A step takes 1 as long
# as it has at most 160 rows, and grows in proportion to them from there. How many drafts does your
# `most_worth` take as the batch grows? From how many requests on does it take none, and why does the
# better model end there too?

# %%


def pass_time(rows):
    return max(1.0, rows / 160)


batches = [1, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256]
fig, axes = draw.figure(9, 3, 1, 2)
for rate, colour in zip((0.8, 0.4), draw.PALETTE, strict=False):
    acceptance = at_rate(rate)
    taken, gain = [], []
    for size in batches:
        number = part.most_worth([(acceptance, 8)] * size, 0, pass_time, lambda n: 0.0, 8)
        taken.append(number)
        gain.append(acceptance.expected(number) / pass_time(size * (1 + number)) * pass_time(size))
    axes[0].plot(batches, taken, "o-", color=colour, label=f"{rate:g}", markersize=4)
    axes[1].plot(batches, gain, "o-", color=colour, label=f"{rate:g}", markersize=4)
axes[0].set(xlabel="requests", title="drafts taken of each")
axes[1].set(xlabel="requests", title="speed beside no drafts", ylim=(0, None))
axes[0].legend(title="rate")
draw.show(fig)

# %% [markdown]
# ## From one distribution to another
#
# The chapter's four tokens. To the left what is drafted and accepted (the smaller of both) and what
# your `residual` adds. To the right 20,000 texts of two tokens by your `rejection_sample`, with one
# draft each: how often each token came first, beside what it must be. If the replacement came from
# the target in the place of the residual, which of the four bars would be too high?

# %%
names = list("abcd")
target, drafted = np.array([10, 5, 3, 2]) / 20, np.array([6, 9, 4, 1]) / 20
rest = part.residual(target, drafted)
both = np.minimum(target, drafted)
rng = np.random.default_rng(0)
firsts, lengths = np.zeros(4), np.zeros(3)
for _ in range(20_000):
    guess = int(rng.choice(4, p=drafted))
    gained = part.rejection_sample([guess], drafted[None], np.stack([target, target]), rng)
    firsts[gained[0]] += 1
    lengths[len(gained)] += 1
fig, axes = draw.figure(9, 3, 1, 2)
axes[0].bar(names, both, color=draw.BLUE, label="drafted and accepted")
axes[0].bar(
    names, (1 - both.sum()) * rest, bottom=both, color=draw.ORANGE, hatch="//", label="residual"
)
axes[0].plot(names, target, "k_", markersize=30, label="target")
axes[0].legend()
axes[0].set(title="where the first token comes from")
axes[1].bar(names, firsts / firsts.sum(), color=draw.SKY)
axes[1].plot(names, target, "k_", markersize=30)
axes[1].set(title="first tokens of 20,000 texts")
draw.show(fig)
print(f"the draft was accepted in {lengths[2] / lengths.sum():.1%} of the texts")

# %% [markdown]
# ## A text in passes
#
# A text that repeats itself with changes, and is known in advance: 48 tokens, of which every twelfth
# is new. Your index guesses up to four tokens, your `accepted` decides. Each box is a token; a change
# of colour is a new pass. How many tokens does a pass bring behind a change, and why not more?

# %%
verse = [3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 7]
story = [*verse]
for turn in range(1, 4):
    story += [*verse[:-1], 100 + turn]
index = part.NgramIndex(3, 2)
known, owner, passes = 12, [-1] * 12, 0
while known < len(story):
    text = story[:known]
    index.read(text, len(text))
    place = index.place(text)
    left = len(story) - known - 1
    drafts = [] if place is None else text[place : place + min(4, left)]
    draws, right = [], True
    for at in range(len(drafts) + 1):
        right = right and (at == 0 or drafts[at - 1] == story[known + at - 1])
        draws.append(story[known + at] if right else 0)
    gained = part.accepted(drafts, draws)
    owner += [passes] * len(gained)
    known += len(gained)
    passes += 1
fig, ax = draw.figure(9, 2.4)
draw.board(ax, 12, 4, "four lines; the first was the prompt")
for at, token in enumerate(story):
    colour = draw.PALE if owner[at] < 0 else (draw.BLUE, draw.SKY)[owner[at] % 2]
    draw.box(ax, at % 12, at // 12, token, colour)
draw.show(fig)
print(f"{len(story) - 12} tokens in {passes} passes")

# %% [markdown]
# ## What a draft model has to catch up
#
# A draft model with blocks of 4 tokens guesses four tokens a step, of which a random number is right.
# Bars: tokens that it must compute before its first guess. Line: blocks of its table. After which
# steps are there two tokens to compute? What happens at step 13, after ten steps in which nothing was
# asked of it?

# %%
blocks = load("paged_cache")["paged_cache"].BlockManager(64, 4)
places = part.DraftPlaces(blocks)
rng = np.random.default_rng(3)
text = list(range(10))
computed, tables, right_before = [], [], []
for step in range(18):
    if step == 12:
        text += [int(token) for token in rng.integers(100, 999, 10)]
    num_held = places.begin("text", text, 4)
    drafts = [int(token) for token in rng.integers(100, 999, 4)]
    places.wrote("text", text[num_held:])
    places.wrote("text", drafts[:3])
    computed.append(len(text) - num_held)
    tables.append(len(places.table("text")))
    right = int(rng.integers(0, 5))
    right_before.append(right)
    text += [*drafts[:right], 1000 + step]
fig, ax = draw.figure(8, 3)
ax.bar(range(1, 19), computed, color=draw.BLUE, label="tokens to compute")
ax.plot(range(1, 19), tables, "o-", color=draw.ORANGE, label="blocks")
ax.set(xlabel="step", xticks=range(1, 19))
ax.legend()
draw.show(fig)
print("right in each step:", *right_before)

# %% [markdown]
# ## Change this and see
#
# 1. Give the draft model of the third picture a favourite: always guess b. How often is it accepted,
#    and is the distribution still right? (`drafted` must then say 1 for b.)
# 2. Let the index of the fourth picture look up n-grams of one token, `NgramIndex(3, 1)`. Does it take
#    fewer passes?
# 3. In the last picture call `places.begin` with 1 draft in every other step. What do the blocks do?
