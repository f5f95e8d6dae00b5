"""The running example of the book: one system prompt and four requests to the tutor."""

SYSTEM = (
    "You are the tutor of a workbook about inference engines. "
    "Answer briefly and plainly, and say when you do not know."
)
QUESTIONS = {
    "A": "What is a KV cache?",
    "B": "What is paged attention?",
    "C": "What does temperature do?",
    "D": "Why is decode slow?",
}


def messages(name: str) -> list[dict[str, str]]:
    """The chat of request `name`, as an OpenAI client sends it."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTIONS[name]},
    ]
