"""Lab 3: the memory of four requests that begin alike."""

from yaie.core.params import SamplingParams
from yaie.demos.runs import Step, ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject

SYSTEM = (
    "You are a patient teacher of a course about inference engines. Answer in one short sentence, "
    "without lists, and use the words of the course: block, slot, prefill, decode, KV cache. "
)
QUESTIONS = (
    "What is a block?",
    "Why is decode slow?",
    "What is a slot?",
    "What does a scheduler do?",
)
PARAMS = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


def show(subject: Subject) -> Shown:
    """Slots at the fullest step: one buffer a request, blocks, and blocks that are shared."""
    alone, size, longest = _fullest(subject, prefix_caching=False)
    shared, _, _ = _fullest(subject, prefix_caching=True)
    held = sum(alone.lens.values())
    buffers = len(QUESTIONS) * longest
    slots = [buffers, alone.table_blocks * size, shared.table_blocks * size]
    each = [count / max(1, held) for count in slots]
    return Shown(
        f"Four requests with the same system prompt, at the step that holds most: {held} tokens.",
        ("one buffer each", "blocks", "blocks, prefix shared"),
        (
            row("blocks in use", "", alone.table_blocks, shared.table_blocks),
            row("slots reserved", *slots),
            row("slots for each token", *(f"{one:.2f}" for one in each)),
        ),
        f"Blocks of {size} take {slots[1]:,} slots instead of {slots[0]:,} for {held} tokens, and with "
        f"a shared prefix {slots[2]:,}.",
    )


def _fullest(subject: Subject, *, prefix_caching: bool) -> tuple[Step, int, int]:
    """The step that holds most tokens, the size of a block, and the longest sequence there may be."""
    with subject.engine(prefix_caching=prefix_caching) as engine:
        prompts = [ask(engine, SYSTEM + question) for question in QUESTIONS]
        done = run(engine, prompts, PARAMS)
        fullest = max(done.steps, key=lambda step: sum(step.lens.values()))
        return fullest, engine.config.block_size, engine.max_model_len
