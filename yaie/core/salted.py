"""Prompts that share the K and V of a prefix only with prompts of the same salt.

What is kept of prefixes is found by their tokens: lab 4's tree asks whether tokens are equal. So a salt
is put where that question is asked first: the first token of a prompt is a `SaltedToken`, a number like
any other, but equal only to the same token with the same salt. Below the tree's root every salt so has
children of its own, and neither labs 3 and 4 nor what a learner made of them need know.
"""


class SaltedToken(int):
    """A token id with a salt: counts, is sent and computed with as the number; compared and hashed with
    its salt."""

    salt: str

    def __new__(cls, token: int, salt: str) -> "SaltedToken":
        made = super().__new__(cls, token)
        made.salt = salt
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaltedToken):
            return False
        return self.salt == other.salt and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.salt, int(self)))

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return SaltedToken, (int(self), self.salt)


def salted(token_ids: list[int], salt: str) -> list[int]:
    """The tokens of a prompt, which has one at least, with its salt."""
    return [SaltedToken(token_ids[0], salt), *token_ids[1:]]
