from typing import Any


def attack_an_event_with_a_line_break(part: Any) -> Any:
    """An event is one line of text, and an empty one ends it."""
    return part.event({"text": "two\nlines"})
