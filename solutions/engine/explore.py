# %% [markdown]
# # Lab 7: from tokens to text, as they come
#
# What a reader sees lags behind what the model has said: a character may be unfinished, and a text
# may be the beginning of a stop string. Your `Detokenizer` and `StopChecker` decide what is shown
# when.

# %%
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.explore import chosen, draw, load

part = load("engine")["engine"]


def visible(text):
    """Spaces and line breaks as signs."""
    return text.replace(" ", "␣").replace("\n", "⏎")


# %% [markdown]
# ## Characters of several tokens
#
# A tokenizer of bytes: every byte is a token. "é" has two, "€" three, an emoji four. What
# `push` returned is below each token. When can "é" be shown first? How many tokens long is
# nothing shown for the last character?

# %%
TEXT = "Café 5€ 🙂!"
data = TEXT.encode()
detokenizer = part.Detokenizer(lambda ids: bytes(ids).decode("utf-8", "replace"))
returned = [detokenizer.push(token) for token in data]

fig, ax = draw.figure(9, 2)
draw.board(ax, len(data), 2.2)
draw.name_rows(ax, ["token", "shown"])
for column, (token, text) in enumerate(zip(data, returned, strict=True)):
    draw.box(ax, column, 0, f"{token:02x}", draw.SKY)
    colour = draw.GREEN if text else draw.ORANGE
    # The font of the picture may have no emoji.
    shown = visible(text) if all(ord(letter) < 0x2FFF for letter in text) else f"U+{ord(text):X}"
    draw.box(ax, column, 1, shown or "…", colour, size=8 if len(shown) < 4 else 6)
draw.legend(ax, {"token": draw.SKY, "shown": draw.GREEN, "held back": draw.ORANGE})
draw.show(fig)
print("".join(returned) + detokenizer.flush() == TEXT)

# %% [markdown]
# ## Stop strings
#
# The stop string is "\n\nUser". Text comes in pieces as tokens bring it. Each row is one push:
# green is what was shown, orange what is held back. Which pieces are held back although they turn
# out to be harmless? By how many pieces does the reader lag at most?

# %%
PIECES = [
    "First",
    ".\n",
    "Then",
    " this",
    ".\n",
    "\n",
    "Us",
    "ually",
    " so.",
    "\n\n",
    "U",
    "se",
    "r",
    ":",
]


def draw_stops(ax, pieces, stops):
    """Push the pieces one by one, a row each."""
    checker, shown, total = part.StopChecker(stops), "", ""
    found = None
    draw.board(
        ax, len("".join(pieces)) + 9, len(pieces), f"stop strings: {', '.join(map(repr, stops))}"
    )
    for row, piece in enumerate(pieces):
        draw.name_rows(ax, [repr(piece)], first=row + 0.5)
        total += piece
        text, found = checker.push(piece)
        shown += text
        for column, letter in enumerate(total):
            state = draw.GREEN if column < len(shown) else draw.RED if found else draw.ORANGE
            draw.box(ax, column, row, visible(letter), state, line=0.5, size=7)
        if found:
            ax.text(len(total) + 0.5, row + 0.5, f"found {found!r}", va="center")
            break
    held = "" if found else checker.flush()
    if held:
        ax.text(len(total) + 0.5, row + 0.5, f"flush: {held!r}", va="center")


fig, ax = draw.figure(9, 3.4)
draw_stops(ax, PIECES, ["\n\nUser"])
draw.legend(
    ax, {"shown": draw.GREEN, "held back": draw.ORANGE, "the stop string, never shown": draw.RED}
)
draw.show(fig)

# %% [markdown]
# ## Two stop strings
#
# "and so on" and "so" both end here. Which one is complete first? What would a checker do that
# looks for one after the other in the whole text?

# %%
fig, ax = draw.figure(9, 1.8)
draw_stops(ax, ["cats", ", dogs", " and", " s", "o", " on"], ["and so on", "so"])
draw.show(fig)

# %% [markdown]
# ## The step loop at work
#
# The embedded tutor answers three requests on your step loop. A box is what a request gained in
# that step; the last one says why it ended. Request b came after four steps: when does it get its
# first text, and does a wait for it? c has a stop string: "of".

# %%
engine = LLMEngine(mine=chosen("engine"), num_blocks=256, threads=1)
ASKED = {
    "a": (0, "What is a KV cache?", SamplingParams(temperature=0, max_tokens=12)),
    "b": (4, "What is a block table?", SamplingParams(temperature=0, max_tokens=8)),
    "c": (1, "What is a prefill?", SamplingParams(temperature=0, stop=("of",), max_tokens=12)),
}


def ask(name):
    """Queue a question under this name."""
    _, question, params = ASKED[name]
    engine.add_request(
        engine.encode_chat([{"role": "user", "content": question}]), params, request_id=name
    )


def run():
    """Step until all are answered: for each step, name -> output."""
    trace = []
    while len(trace) < 5 or engine.has_work:
        for name, (when, *_) in ASKED.items():
            if when == len(trace):
                ask(name)
        trace.append({output.request_id: output for output in engine.step()})
    return trace


trace = run()
fig, ax = draw.figure(9.5, 2.2)
draw.board(ax, 2 * len(trace), len(ASKED) + 0.8)
draw.name_rows(ax, list(ASKED))
for step, outputs in enumerate(trace):
    for name, output in outputs.items():
        row, reason = list(ASKED).index(name), output.finish_reason
        text = visible(output.text) or "…"
        colour = draw.RED if reason else draw.GREEN if output.text else draw.ORANGE
        draw.box(ax, 2 * step, row, text if len(text) < 8 else text[:6] + "…", colour, width=2,
                 height=0.9, size=6.5)  # fmt: skip
        if reason:
            ax.text(2 * step + 2.1, row + 0.5, reason.value, va="center", fontsize=8)
    ax.text(2 * step + 1, len(ASKED) + 0.4, step, ha="center", va="center", fontsize=8)
ax.text(-0.3, len(ASKED) + 0.4, "step", ha="right", va="center")
draw.legend(ax, {"text": draw.GREEN, "nothing to show yet": draw.ORANGE, "last": draw.RED})
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Cut `data` off in the middle of the emoji. What does `flush` return, and why not nothing?
# 2. Use the stop string "\n" in the second picture. How much is ever held back?
# 3. Call `engine.abort("a")` in the loop of `run` once `len(trace)` is 6. What becomes of b and c?
# 4. Give request a `max_tokens=1`. What is its reason, and in which step does it end?
