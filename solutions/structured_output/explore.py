# %% [markdown]
# # Lab 21: states, masks, jumps
#
# What your part knows before any token is sampled: how many states a schema has, how many tokens each of
# them allows, and how much of an answer is certain.

# %%
import json

import numpy as np

from yaie.explore import draw, load

part = load("structured_output")["structured_output"]
PUNCTUATION = ["{", "}", "[", "]", ",", ":", '"', ", ", ": ", '": ', '", "', '{"', '"}']
WORDS = [
    "name",
    "age",
    "first",
    "_name",
    "tags",
    "true",
    "false",
    "null",
    "al",
    "so",
    "known",
    "as",
]
CHARACTERS = [chr(code) for code in range(32, 127)]
tokens = [text.encode() for text in dict.fromkeys([*CHARACTERS, *PUNCTUATION, *WORDS])]
end = len(tokens)
trie = part.TokenTrie([*tokens, b""])
person = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "also_known_as": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["first_name", "age"],
    "additionalProperties": False,
}

# %% [markdown]
# ## How narrow the way is
#
# A document goes through the automaton byte by byte. The bars say how many bytes might have come
# instead of each. Where is that number 1, and why not after the braces?

# %%
automaton = part.ByteAutomaton(part.schema_grammar(person))
document = json.dumps({"first_name": "Ada", "age": 36, "also_known_as": ["AAL"]}).encode()
states = [automaton.start]
for byte in document:
    states.append(automaton.step(states[-1], byte))
choices = [len(automaton.live_bytes(state)) for state in states[:-1]]
fig, ax = draw.figure(10, 2.6)
colours = [draw.GREEN if count == 1 else draw.BLUE for count in choices]
ax.bar(range(len(document)), choices, color=colours, width=0.9)
ax.set_yscale("log", base=2)
ax.set(
    xticks=range(len(document)),
    xticklabels=[chr(byte) if byte != 32 else "␣" for byte in document],
    ylabel="bytes that may come",
)
ax.tick_params(axis="x", labelsize=7)
draw.show(fig)
certain = sum(count == 1 for count in choices)
print(f"{automaton.num_states} states; {certain} of {len(document)} bytes are certain")
print("final at the end:", automaton.is_final(states[-1]))

# %% [markdown]
# ## What optional properties cost
#
# A grammar that lists all subsets of n optional properties has 2 to the power of n options. How do your
# states grow?

# %%


def num_states(count):
    """Of an object with so many optional integers, when all states have been made."""
    names = [f"p{i}" for i in range(count)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    found = part.ByteAutomaton(part.schema_grammar({**schema, "additionalProperties": False}))
    todo = [found.start]
    seen = set(todo)
    while todo:
        state = todo.pop()
        behind = {found.step(state, byte) for byte in found.live_bytes(state)} - seen
        seen |= behind
        todo += behind
    return len(seen)


counts = [1, 2, 4, 6, 8, 12]
fig, ax = draw.figure(5, 2.6)
ax.plot(counts, [num_states(count) for count in counts], "o-", color=draw.BLUE)
ax.set(xlabel="optional properties", ylabel="states")
draw.show(fig)

# %% [markdown]
# ## Masks, one for each state
#
# The masks along the document, as rows; a column is a token. Which rows are the same, and how many masks
# were computed in all?

# %%
masks = part.TokenMasks(automaton, trie, frozenset((end,)), most=1024)
rows = [
    np.unpackbits(masks.mask(state), bitorder="little")[: end + 1]
    for state in states[: len(document)]
]
fig, ax = draw.figure(10, 4.2)
ax.imshow(np.array(rows), aspect="auto", cmap=draw.WEIGHTS, interpolation="nearest")
ax.set(xlabel="token", ylabel="byte of the document")
draw.show(fig)
print(f"{len(set(states[:-1]))} masks for {len(document)} bytes")
print("tokens allowed, byte by byte:", " ".join(str(int(row.sum())) for row in rows[:24]), "...")

# %% [markdown]
# ## What needs no model
#
# An answer is written token by token, always the longest one that fits the document; before each one
# your part says what is forced. Twice: a record with short values, and one with a constant.

# %%


def passes(grammar, text):
    """(tokens of the text, those of them that were forced), following it with the part."""
    machine = part.ByteAutomaton(grammar)
    matcher = part.Matcher(machine, part.TokenMasks(machine, trie, frozenset((end,)), most=1024))
    written, jumped = [], 0
    while text:
        run = matcher.forced(8)
        token = run[0] if run else longest(matcher, text)
        jumped += bool(run)
        assert matcher.accept(token)
        written.append(tokens[token].decode())
        text = text[len(tokens[token]) :]
    return written, jumped


def longest(matcher, text):
    bits = np.zeros((end + 8) // 8, np.uint8)
    matcher.fill(bits)
    allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:end]).tolist()
    return max(
        (token for token in allowed if text.startswith(tokens[token])),
        key=lambda token: len(tokens[token]),
    )


unit = {"const": "tokens_known_so_far"}
measured = {
    "type": "object",
    "properties": {"unit": unit, "age": {"type": "integer"}},
    "required": ["unit", "age"],
    "additionalProperties": False,
}
for schema, record in [
    (person, {"first_name": "Ada", "age": 36}),
    (measured, {"unit": unit["const"], "age": 36}),
]:
    written, jumped = passes(part.schema_grammar(schema), json.dumps(record).encode())
    print(f"{jumped} of {len(written)} tokens are forced:", " ".join(written))

# %% [markdown]
# ## Change this and see
#
# 1. Give `first_name` a `maxLength` of 200. How many states are made now for the document above?
# 2. Leave a token out of `tokens`, say the colon. Which documents can still be written?
# 3. Add the token `"first_name": ` to the vocabulary. Is it forced after the brace? Why not?
