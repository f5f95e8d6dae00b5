# %% [markdown]
# # Lab 8: what travels over the wire
#
# Your API answers for a real engine with the embedded tutor behind it. There is no network: a
# client calls the application directly and keeps every message with its time.

# %%
import json
import textwrap
import time

from yaie.engine.llm_engine import LLMEngine
from yaie.explore import chosen, draw, load
from yaie.explore.wire import Client

api = load("api_server")["api_server"]


def new_engine():
    """The tutor, ready to answer."""
    return LLMEngine(mine=chosen("api_server"), num_blocks=256, threads=1)


client = Client(api, new_engine())
client.start()
CHAT = "/v1/chat/completions"
QUESTION = {
    "messages": [{"role": "user", "content": "What is a KV cache?"}],
    "temperature": 0,
    "max_tokens": 12,
}
_ = client.post(CHAT, QUESTION)  # the first call takes longer

# %% [markdown]
# ## A streamed answer
#
# The client asks for a stream and for its usage. Each row is an event, in the order in which it
# came. What comes before the first word, what after the last? In which event does `finish_reason`
# stand?

# %%
answer = client.post(CHAT, QUESTION | {"stream": True, "stream_options": {"include_usage": True}})


def told(data):
    """(kind, what an event says in few words)"""
    if data == "[DONE]":
        return "end", data
    chunk = json.loads(data)
    if "error" in chunk:
        return "error", chunk["error"]["message"]
    if not chunk["choices"]:
        counts = chunk["usage"]
        return "usage", f"usage: {counts['prompt_tokens']} + {counts['completion_tokens']} tokens"
    choice = chunk["choices"][0]
    said = ", ".join(f"{key} {value!r}" for key, value in choice["delta"].items())
    reason = choice["finish_reason"]
    return ("finish", f"{said} finish_reason {reason!r}".strip()) if reason else ("delta", said)


KINDS = {
    "delta": draw.BLUE,
    "finish": draw.RED,
    "usage": draw.GREEN,
    "end": draw.INK,
    "error": draw.PINK,
}
MARKS = {"delta": "o", "finish": "s", "usage": "D", "end": "X", "error": "P"}


def draw_events(ax, answer):
    """Events from top to bottom, at the time when they were sent."""
    events = answer.events()
    last = events[-1][0]
    for row, (at, data) in enumerate(events):
        kind, words = told(data)
        ax.plot([0, at], [row, row], color=draw.PALE, zorder=0)
        ax.plot(at, row, MARKS[kind], color=KINDS[kind])
        ax.text(last * 1.06, row, words, va="center", fontsize=8)
    ax.set(xlim=(0, last * 1.04), ylim=(len(events) - 0.5, -0.5), yticks=[], xlabel="milliseconds")
    ax.set_title(f"status {answer.status}, {answer.headers['content-type']}")
    ax.spines["left"].set_visible(False)


fig, ax = draw.figure(9, 4)
draw_events(ax, answer)
draw.show(fig)
print("the first bytes on the wire:")
print(textwrap.shorten(answer.pieces[0][1].decode(), 200, placeholder=" ..."))

# %% [markdown]
# ## Streamed against whole
#
# The same question twice. When can a reader begin to read? Which of the two is complete first? Which
# sends more bytes?

# %%
whole = client.post(CHAT, QUESTION)
streamed = client.post(CHAT, QUESTION | {"stream": True})


def letters_over_time(answer):
    """(milliseconds, letters of the answer that have arrived)"""
    if "event-stream" not in answer.headers["content-type"]:
        text = json.loads(answer.body)["choices"][0]["message"]["content"]
        return [(0.0, 0), (answer.pieces[-1][0], len(text))]
    curve, count = [(0.0, 0)], 0
    for at, data in answer.events():
        if data != "[DONE]":
            choices = json.loads(data).get("choices", [])
            count += sum(len(choice["delta"].get("content") or "") for choice in choices)
        curve.append((at, count))
    return curve


fig, ax = draw.figure(7.5, 2.8)
for name, got, style in (("streamed", streamed, "-"), ("whole", whole, "--")):
    times, counts = zip(*letters_over_time(got), strict=True)
    label = f"{name}: {len(got.body)} bytes, pieces: {len(got.pieces)}"
    ax.step(times, counts, style, where="post", linewidth=2, label=label,
            color=draw.BLUE if name == "streamed" else draw.ORANGE)  # fmt: skip
ax.set(xlabel="milliseconds after the call", ylabel="letters that have arrived")
ax.legend(loc="upper left")
draw.show(fig)

# %% [markdown]
# ## What an error looks like
#
# Six calls that cannot be answered. Which status do you expect for each? Which of them names a
# parameter? Every body has the same shape: one client library reads them all.

# %%
CALLS = {
    "unknown model": client.post(CHAT, QUESTION | {"model": "gpt-9"}),
    "temperature 9000": client.post(CHAT, QUESTION | {"temperature": 9000}),
    "no messages": client.post(CHAT, {"temperature": 0}),
    "a message without role": client.post(CHAT, {"messages": [{"content": "Hi"}]}),
    "not JSON": client.post(CHAT, b'{"messages": ['),
    "no such path": client.get("/v1/nothing"),
}
COLUMNS = {"status": 0, "type": 1.5, "code": 5.0, "param": 7.8, "message": 10.3}

fig, ax = draw.figure(11, 3.2)
ax.set(xlim=(-4, 20), ylim=(len(CALLS) - 0.5, -1.1))
ax.axis("off")
for name, x in COLUMNS.items():
    ax.text(x, -0.8, name, weight="bold", va="center")
for row, (name, got) in enumerate(CALLS.items()):
    draw.box(ax, -4, row - 0.45, "", draw.PALE if row % 2 else draw.PAPER, width=24, height=0.9)
    ax.text(-3.9, row, name, va="center")
    error = json.loads(got.body)["error"]
    ax.text(COLUMNS["status"], row, got.status, va="center", weight="bold", color=draw.RED)
    for key in ("type", "code", "param"):
        ax.text(COLUMNS[key], row, str(error[key]), va="center", fontsize=7.5, family="monospace")
    ax.text(COLUMNS["message"], row, textwrap.fill(error["message"], 62), va="center", fontsize=7.5)
draw.show(fig)
print(json.dumps(json.loads(CALLS["temperature 9000"].body), indent=2))

# %% [markdown]
# ## A client that leaves
#
# The client hangs up after the third piece of a long answer. How many more tokens may the engine
# compute for it? What would happen to all the others if the server did not notice?

# %%
LONG = QUESTION | {"stream": True, "max_tokens": 200, "ignore_eos": True}


def tokens_made(leave_after):
    """How many tokens the engine generated for a client who leaves; 0 is one who stays."""
    before = client.stats()["generation_tokens"]
    client.post(CHAT, LONG, leave_after=leave_after)
    time.sleep(0.3)  # what is not stopped by now goes on
    return int(client.stats()["generation_tokens"] - before)


results = {"stays": tokens_made(0), "leaves after 3 pieces": tokens_made(3)}
fig, ax = draw.figure(7, 1.8)
names, totals = list(results), list(results.values())
ax.barh(names, totals, color=[draw.BLUE, draw.ORANGE], height=0.6)
for row, made in enumerate(totals):
    ax.text(made + 2, row, f"{made} tokens", va="center")
ax.set(xlabel="tokens that the engine generated", xlim=(0, 1.3 * max(totals)))
ax.invert_yaxis()
draw.show(fig)
client.stop()

# %% [markdown]
# ## Change this and see
#
# 1. Add `"n": 2` to the streamed question. What distinguishes the events of the two choices?
# 2. Leave `stream_options` out. Which event is missing, and which field of the others?
# 3. Stop the client, take a `QUESTION` with `"stop": ["the"]`, and predict the last three events.
# 4. Ask for `"max_tokens": 10000`. Which status, and which code? (Start the client again first.)
