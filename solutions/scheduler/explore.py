# %% [markdown]
# # Lab 6: who runs when
#
# Your scheduler decides on a cache of blocks, without a model: tokens come from nowhere. A row is a
# request, a column a step, a number says how many tokens the request computes in that step.

# %%
from yaie.explore import draw, load, timeline
from yaie.explore.timeline import Job

parts = load("scheduler")
part, memory = parts["scheduler"], parts["paged_cache"]


def play(jobs, *, kind=None, policy="fcfs", num_blocks=64, host_blocks=0, **settings):
    """The steps that a scheduler needs for these jobs. A block holds four tokens."""
    blocks = memory.BlockManager(num_blocks, 4, host_blocks)
    cache = memory.KVCacheManager(blocks, parts["radix_tree"].RadixTree(4))
    settings = {"max_num_seqs": 4, "token_budget": 16} | settings
    scheduler = (kind or part.Scheduler)(cache, part.POLICIES[policy](cache), **settings)
    return timeline.play(scheduler, cache, jobs)


def compare(jobs, runs, height=3.6):
    """A timeline for each run, one below the other, to the same scale."""
    longest = max(len(steps) for steps in runs.values())
    fig, axes = draw.figure(9, height, len(runs), 1, squeeze=False)
    for ax, (title, steps) in zip(axes[:, 0], runs.items(), strict=True):
        timeline.draw(ax, steps, jobs, f"{title}: {len(steps)} steps", width=longest)
    draw.legend(axes[-1, 0], timeline.LEGEND, hatched=timeline.WASTED)
    draw.show(fig)


# %% [markdown]
# ## One step after the other
#
# Four requests arrive at steps 0, 0, 2 and 4. A step computes 16 tokens at most. In which step does
# b compute its first token? How many tokens does c compute when it is admitted, and why not all of
# them?

# %%
jobs = [Job("a", 12, 8), Job("b", 10, 6), Job("c", 20, 5, 2), Job("d", 6, 7, 4)]
compare(jobs, {"continuous batching": play(jobs)}, height=2.6)

# %% [markdown]
# ## Continuous against static
#
# Eight requests, three at once; outputs of very different lengths. A static batch is filled, and runs
# until its longest request has ended. How many steps do you expect of each? Which request waits longest
# in both?

# %%
lengths = (3, 14, 4, 2, 9, 3, 12, 4)
jobs = [Job(name, 4, length) for name, length in zip("abcdefgh", lengths, strict=True)]
runs = {
    "static": play(jobs, kind=part.StaticScheduler, max_num_seqs=3),
    "continuous": play(jobs, max_num_seqs=3),
}
compare(jobs, runs, height=6)
for name, steps in runs.items():
    print(f"{name:13}{timeline.summary(steps)}")

# %% [markdown]
# ## A long prompt among talkers
#
# a and b are in the middle of their answers when c comes with a prompt of 44 tokens. With chunks
# the budget is shared. Without, the prompt is computed whole: its step is as long as its prompt,
# and all wait for it. Draw the number of tokens of each step: which of the two would you rather be
# a reader of?

# %%
jobs = [Job("a", 4, 12), Job("b", 4, 12), Job("c", 44, 4, 3)]
runs = {
    "chunks, budget 16": play(jobs),
    "whole prompts, budget 64": play(jobs, chunked_prefill=False, token_budget=64),
}
compare(jobs, runs, height=4)
fig, ax = draw.figure(7, 2.2)
for (name, steps), colour, mark in zip(runs.items(), (draw.BLUE, draw.RED), "os", strict=True):
    ax.plot([sum(step.tokens.values()) for step in steps], color=colour, marker=mark, label=name)
ax.set(xlabel="step", ylabel="tokens in the step")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Out of blocks
#
# Three requests fit while they are short, but not once they have grown: 12 blocks. Who has to go,
# and how much is computed a second time when it comes back? With a host pool its blocks are moved
# instead.

# %%
jobs = [Job("a", 12, 10), Job("b", 12, 10), Job("c", 12, 10)]
runs = {
    "recompute": play(jobs, num_blocks=12),
    "swap": play(jobs, num_blocks=12, host_blocks=12, swap=True),
}
compare(jobs, runs, height=4.2)
needed = sum(job.prompt + job.output - 1 for job in jobs)
for name, steps in runs.items():
    again = sum(sum(step.tokens.values()) for step in steps) - needed
    moved = sum(step.swapped for step in steps)
    print(f"{name:13}{len(steps)} steps, {again} tokens computed again, {moved} blocks moved")

# %% [markdown]
# ## Who matters more
#
# Two requests at once. c is urgent (priority 0), the others are not (priority 1). When does c start
# under each policy? Does it take the place of one that runs?

# %%
jobs = [Job("a", 6, 6, 0, 1), Job("b", 6, 9, 0, 1), Job("d", 6, 5, 1, 1), Job("c", 6, 4, 2, 0)]
runs = {
    "first come, first served": play(jobs, max_num_seqs=2),
    "priority": play(jobs, max_num_seqs=2, policy="priority"),
}
compare(jobs, runs, height=4.4)

# %% [markdown]
# ## Change this and see
#
# 1. Give the first picture a `token_budget` of 4. Who pays for it?
# 2. Let all outputs be equally long in "Continuous against static". What is left of the difference?
# 3. Add `watermark=3` to the runs that are out of blocks. Is anybody still preempted? What does it
#    cost?
# 4. Make c's arrival 0 and its priority 5 in the last picture. Can it starve?
