# %% [markdown]
# # Lab 17: sizes, buffers, loops
#
# What your part decides before any kernel runs: how much of a step is padding, what lies in the buffer,
# and who waits for whom.

# %%
import numpy as np

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts.graphs import Size
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.core.step import StepInput
from yaie.explore import draw, load

parts = load("cuda_graphs")
part = parts["cuda_graphs"]

# %% [markdown]
# ## How much of a step is padding
#
# A step takes the next larger size. Where is the share of padding largest? At most how many rows can it
# be, and what would more sizes save?

# %%
largest = 64
numbers = part.padded_sizes(largest)
sizes = [Size(number) for number in numbers]
rows = list(range(1, largest + 1))
padding = [part.size_for(sizes, Size(n)).rows - n for n in rows]
fig, ax = draw.figure(8, 2.6)
ax.bar(rows, rows, color=draw.BLUE, width=1, label="requests")
ax.bar(rows, padding, bottom=rows, color=draw.RED, width=1, label="padding")
ax.set(xlabel="requests in the step", ylabel="rows computed")
ax.legend()
draw.show(fig)
share = 100 * sum(padding) / (sum(padding) + sum(rows))
print(f"{len(sizes)} sizes: {numbers}")
print(f"padding: {max(padding)} rows at most, {share:.1f}% if every number is as likely")

# %% [markdown]
# ## What lies in the buffer
#
# Two decodes, of seats 4 and 0, and a chunk of three tokens of seat 7, which enters a new block, in a
# buffer with room for four decodes and six tokens of two chunks. It held something else (77). Which
# numbers belong to a request, and which to padding? Seat 12 is padding. Where does the chunk begin, and
# where does it end?


# %%
class Host:
    """What `fill` asks of a machine: the slot and the token of each of the step's five tokens."""

    nobody = 12

    def slots(self, step):
        return np.array([37, 14, 132, 133, 134], np.int32)

    def token_ids(self, step):
        return np.array([~4, ~0, 501, 502, 503], np.int32)


step = StepInput(
    1,
    seats=np.array([4, 0, 7], np.int32),
    starts=np.array([9, 2, 16], np.int32),
    num_tokens=np.array([1, 1, 3], np.int32),
    samples=np.ones(3, np.bool_),
    table_seats=np.array([7], np.int32),
    table_columns=np.array([4], np.int32),
    table_blocks=np.array([33], np.int32),
)


def show_buffer(size, step):
    memory = np.full(part.num_uploaded(size), 77, np.int32)
    parts = part.parts_of(memory, size)
    part.fill(parts, size, step, Host())
    for name, values in parts._asdict().items():
        print(f"{name:14}" + "".join(f"{value:5}" for value in values))


show_buffer(Size(decodes=4, tokens=6, chunks=2), step)

# %% [markdown]
# ## Who waits
#
# A clock instead of a device: planning takes 2, sending 1, the step 6, text 2. Lab 7's loop does one
# after the other. What does yours do? How many units are between two tokens?

# %%
PLAN, SEND, RUN, TEXT = 2, 1, 6, 2


class Clock:
    """Scheduler and executor for one request, on a clock. spans: (what, step, begin, end)."""

    def __init__(self, scheduler):
        self.scheduler, self.now, self.free, self.step, self.spans = scheduler, 0, 0, 0, []

    def spend(self, what, step, units):
        if units > 0:
            self.spans.append((what, step, self.now, self.now + units))
            self.now += units

    def schedule(self):
        plan = self.scheduler.schedule()
        if not plan.is_empty:
            self.step += 1
            self.spend("plan", self.step, PLAN)
        return plan

    def execute(self, plan):
        if plan.is_empty:
            return Sent(self, plan, self.step, 0)
        self.spend("send", self.step, SEND)
        begin = max(self.now, self.free)
        self.free = begin + RUN
        self.spans.append(("run", self.step, begin, self.free))
        return Sent(self, plan, self.step, self.free)

    def __getattr__(self, name):
        return getattr(self.scheduler, name)


class Sent:
    """A step on its way."""

    def __init__(self, clock, plan: StepPlan, step, done):
        self.clock, self.plan, self.step, self.done = clock, plan, step, done

    def send_masks(self):
        pass

    def result(self):
        self.clock.spend("wait", self.step, self.done - self.clock.now)
        self.clock.spend("text", self.step, TEXT)
        return StepOutcome([[0] for item in self.plan.scheduled if item.samples])


def life(ahead, tokens=5):
    """The clock after a request of so many tokens, and when each of them was told."""
    memory, engine, scheduling = parts["paged_cache"], parts["engine"], parts["scheduler"]
    cache = memory.KVCacheManager(memory.BlockManager(8, 4), None)
    policy = scheduling.POLICIES["fcfs"](cache)
    clock = Clock(scheduling.Scheduler(cache, policy, max_num_seqs=1, token_budget=16))
    makers = (lambda: engine.Detokenizer(str)), engine.StopChecker
    loop = engine.EngineCore(clock, clock, *makers, frozenset())
    if ahead:
        loop = part.OverlappedLoop(loop, clock, clock)
    loop.add_request(Request("A", [1], SamplingParams(), max_tokens=tokens))
    told = []
    while loop.has_work:
        told += [clock.now for output in loop.step() for _ in output.token_ids]
    return clock, told


COLOURS = {"plan": draw.ORANGE, "send": draw.BLUE, "text": draw.GREEN, "run": draw.BLUE}
fig, axes = draw.figure(9, 3.6, 2, 1, squeeze=False)
for ax, (name, ahead) in zip(
    axes[:, 0], {"in order": False, "one step ahead": True}.items(), strict=True
):
    clock, told = life(ahead)
    for what, number, begin, end in clock.spans:
        if what != "wait":
            ax.barh(what == "run", end - begin, left=begin, color=COLOURS[what], edgecolor="white")
            ax.text((begin + end) / 2, what == "run", number, ha="center", va="center", fontsize=7)
    ax.set(
        yticks=[0, 1],
        yticklabels=["host", "device"],
        xlim=(0, 62),
        title=f"{name}: tokens at {told}",
    )
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Let `RUN` be 3. Who waits now, and how far apart are two tokens?
# 2. Give `padded_sizes` a `largest` of 7, then of 65. Which step has the most padding?
# 3. Give the step of the second picture five new entries. Where do they stand?
# 4. Leave the chunk out of the second picture's step, and give it `Size(4)`. Which part is empty now?
