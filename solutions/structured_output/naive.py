# ORACLE
"""The same questions, answered by trying: every way through the grammar, for every token of the
vocabulary. The oracle."""

from collections.abc import Sequence

from yaie.core.grammar import Choice, Concat, Grammar, OneOf


class Attempt:
    """Tries to read bytes by a grammar. ran_out: whether some way through it ended with the bytes, in
    the middle of the grammar."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[tuple[Grammar, int], set[int]] = {}
        self.ran_out = False

    def ends(self, node: Grammar, begin: int) -> set[int]:
        """Where `node` may end if it begins here."""
        key = (node, begin)
        if key not in self._known:
            self._known[key] = self._tried(node, begin)
        return self._known[key]

    def _tried(self, node: Grammar, begin: int) -> set[int]:
        if isinstance(node, OneOf):
            if begin == len(self._data):
                self.ran_out = True
                return set()
            return {begin + 1} if self._data[begin] in node.values else set()
        if isinstance(node, Choice):
            return set().union(*(self.ends(option, begin) for option in node.options))
        if isinstance(node, Concat):
            ends = {begin}
            for part in node.parts:
                ends = set().union(*(self.ends(part, end) for end in ends))
            return ends
        found: set[int] = set()
        ends, count = {begin}, 0
        while ends:
            if count >= node.least:
                if ends <= found:
                    break
                found |= ends
            if count == node.most:
                break
            ends = set().union(*(self.ends(node.item, end) for end in ends))
            count += 1
        return found


def is_document(grammar: Grammar, data: bytes) -> bool:
    """Whether these bytes are a whole document."""
    return len(data) in Attempt(data).ends(grammar, 0)


def can_begin(grammar: Grammar, data: bytes) -> bool:
    """Whether some document begins with these bytes."""
    attempt = Attempt(data)
    return len(data) in attempt.ends(grammar, 0) or attempt.ran_out


def allowed(grammar: Grammar, output: bytes, tokens: Sequence[bytes]) -> list[int]:
    """The tokens that may come behind an output, each of them tried."""
    return [
        token for token, text in enumerate(tokens) if text and can_begin(grammar, output + text)
    ]


def forced_bytes(grammar: Grammar, output: bytes) -> bytes:
    """What must come behind an output, each of 256 bytes tried again and again."""
    run = b""
    while not is_document(grammar, output + run):
        live = [byte for byte in range(256) if can_begin(grammar, output + run + bytes([byte]))]
        if len(live) != 1:
            break
        run += bytes(live)
    return run


def forced(grammar: Grammar, output: bytes, tokens: Sequence[bytes]) -> list[int]:
    """The tokens that cut what must come from the left, as long as what follows cannot matter."""
    run, found = forced_bytes(grammar, output), []
    while run:
        longest = max(allowed(grammar, output, tokens), key=lambda t: len(tokens[t]), default=None)
        if longest is None or len(tokens[longest]) > len(run):
            break
        found.append(longest)
        output, run = output + tokens[longest], run[len(tokens[longest]) :]
    return found
