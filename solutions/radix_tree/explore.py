# %% [markdown]
# # Lab 4: the tree itself
#
# A token is a character here, and a block holds four. Each box is a block: its four characters (␣
# is a space), with its block number below. A frame is a node. The pictures ask your tree through
# its public methods alone, so they hold for any design.

# %%
from yaie.explore import draw, load
from yaie.explore.tree import TreeView

part = load("radix_tree")["radix_tree"]
BLOCK_SIZE = 4


def new_view():
    """An empty tree, ready to be drawn."""
    return TreeView(part.RadixTree(BLOCK_SIZE))


# %% [markdown]
# ## Insert
#
# Two prompts begin with the same 19 characters. How many nodes has the tree after the first, and
# how many after the second? Which block numbers does the second prompt not get?

# %%
view = new_view()
fig, axes = draw.figure(9, 3.2, 2, 1, height_ratios=(1, 2))
view.insert("You are helpful. What is paging?")
view.draw(axes[0], "one prompt")
view.insert("You are helpful. Why is the sky blue?")
view.draw(axes[1], "a second one that begins the same")
draw.show(fig)

# %% [markdown]
# ## Only whole blocks are shared
#
# "Translate this: cat" and "Translate this: cow" agree in 17 characters. How many blocks do they
# share? And "Translate that"? Where must nodes split?

# %%
view = new_view()
fig, axes = draw.figure(9, 5.2, 3, 1, height_ratios=(1, 2, 3))
for ax, text in zip(
    axes,
    ("Translate this: cat food", "Translate this: cow milk", "Translate that: a small dog"),
    strict=True,
):
    view.insert(text)
    view.draw(ax, f"after “{text}”")
draw.show(fig)

# %% [markdown]
# ## A match may end inside a node
#
# The tree holds one long prompt as one node. A request asks for the first half of it.
# `match_prefix` returns a node that has exactly the matched blocks, to be locked. What must
# happen to the long node? Which of the two halves is the object that was there before, and why does
# it matter?

# %%
view = new_view()
fig, axes = draw.figure(9, 2.6, 2, 1)
whole = view.insert("Once upon a time there was a king")
view.draw(axes[0], "before")
blocks, half = view.match("Once upon a time, ")
view.draw(axes[1], f"after a match of blocks {blocks}")
draw.show(fig)
print("the old node still stands for", view.tree.path_blocks(whole))
print("the new node stands for      ", view.tree.path_blocks(half))

# %% [markdown]
# ## Locks
#
# A running request locks the node that its prefix ends at (blue). Two requests run on this tree.
# Which nodes may be evicted now? `num_evictable` counts their blocks: what does it say?

# %%
view = new_view()
system = "You are a helpful tutor. "
ends = {word: view.insert(system + word) for word in ("Paging?", "Sampling?", "Radix trees?")}
view.insert("Hello, who are you?")
view.lock(ends["Paging?"])
view.lock(ends["Radix trees?"])

fig, ax = draw.figure(9, 3.4)
view.draw(ax, f"{view.tree.num_evictable} of {view.tree.num_blocks} blocks may be evicted")
draw.legend(ax, {"locked": draw.BLUE, "free to go": draw.ORANGE})
draw.show(fig)

# %% [markdown]
# ## What eviction takes
#
# Memory is short: blocks are wanted, two at a time. Least recently used leaves go first, each from
# its end. "Hello" was used last, but a request asks for "Sampling?" again before the first call.
# Which block goes first?

# %%
view.match(system + "Sampling?")
fig, axes = draw.figure(9, 8.4, 3, 1, height_ratios=(6.4, 6.4, 4.9))
for ax in axes:
    before = view.shown()
    gone = view.evict(2)
    title = f"evict(2) takes blocks {gone}; {view.tree.num_evictable} more may go"
    view.draw(ax, title, nodes=before, gone=gone)
draw.legend(ax, {"locked": draw.BLUE, "free to go": draw.ORANGE}, hatched={"evicted": draw.PALE})
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Set `BLOCK_SIZE` to 1, then to 16. What happens to sharing, and to the number of nodes?
# 2. Unlock `ends["Paging?"]` before the evictions. Does the shared system prompt go earlier?
# 3. Replace `evict(2)` by `evict(100)`. What remains, and why must it?
# 4. Lock `half` in the picture of the match, then evict everything. What is left of the king?
