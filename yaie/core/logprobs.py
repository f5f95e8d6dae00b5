"""The log-probability of a token, as answers tell it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token, and of the most likely tokens in its place.

    They are the model's own: neither `logit_bias` nor penalties nor a constraint nor temperature nor
    filters have a part in them.
    top: (token id, log-probability), the most likely first; as many as were asked for. If tokens were
        asked for by their ids (`logprob_token_ids`), these, in that order.
    rank: of a prompt's token, how many tokens are at least as likely, itself included; else None.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None
