from typing import Any


def attack_numbers(part: Any) -> Any:
    """Which of these texts the grammar of a number takes as a whole."""
    automaton = part.ByteAutomaton(part.number())
    whole = []
    for text in (b"0", b"-1.5", b"1e5", b"01", b"-", b"1."):
        state = automaton.start
        for byte in text:
            state = automaton.step(state, byte) if state >= 0 else state
        whole.append(state >= 0 and automaton.is_final(state))
    return whole
