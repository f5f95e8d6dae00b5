"""The text of outputs, with what requests want in it that usually has no place there.

Lab 7's loop asks for a detokenizer and a stop checker when a request enters. `TextIsolation` knows the
request, and gives the loop these where they are wanted.
"""

from collections.abc import Callable, Sequence
from functools import partial

from yaie.core.contracts import Detokenizer, StopChecker
from yaie.core.request import Request
from yaie.engine.step.byte_text import ByteDetokenizer, TokenTable
from yaie.models.tokenizer import Tokenizer
from yaie.parts import Parts


class Detokenizers:
    """Makes them for the requests of one engine."""

    def __init__(self, parts: Parts, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._part = parts["engine"]
        is_reference = all(not part.is_yours for part in parts.table() if part.lab == "engine")
        self._joins_bytes = is_reference and tokenizer.joins_bytes
        self.usual = self._maker(tokenizer.decode, tokenizer.token_bytes)
        self._with_special = self._maker(tokenizer.decode_all, self._spelled)

    def special(self, request: Request) -> Detokenizer:
        """Of a request that wants special tokens in its text, or its end."""
        skips = request.params.skip_special_tokens
        own = self.usual() if skips else self._with_special()
        return ShowsEnd(own, request) if request.params.include_stop_str_in_output else own

    def _maker(
        self,
        decode: Callable[[Sequence[int]], str],
        token_bytes: Callable[[int], bytes | None],
    ) -> Callable[[], Detokenizer]:
        if self._joins_bytes:
            return partial(ByteDetokenizer, TokenTable(token_bytes))
        return partial(self._part.Detokenizer, decode)

    def _spelled(self, token_id: int) -> bytes:
        """The bytes of a token, and of a special one those of its name."""
        data = self._tokenizer.token_bytes(token_id)
        return self._tokenizer.token_name(token_id).encode() if data is None else data


class ShowsEnd:
    """See `yaie.core.contracts.Detokenizer`: at the end, the token that ended the output is a part of
    its text. Lab 7's loop pushes all others."""

    def __init__(self, own: Detokenizer, request: Request) -> None:
        self._own = own
        self._request = request
        self._num_pushed = 0

    def push(self, token_id: int) -> str:
        """See the contract."""
        self._num_pushed += 1
        return self._own.push(token_id)

    def flush(self) -> str:
        """See the contract."""
        request = self._request
        left = request.token_ids[request.num_prompt_tokens + self._num_pushed :]
        is_full = self._num_pushed >= request.max_tokens  # then what is left came too late
        ending = "" if is_full or not left else self._own.push(left[0])
        return ending + self._own.flush()


class ShowsStops:
    """See `yaie.core.contracts.StopChecker`: the stop string that is found is a part of the text."""

    def __init__(self, own: StopChecker) -> None:
        self._own = own

    def push(self, text: str) -> tuple[str, str | None]:
        """See the contract."""
        shown, stop = self._own.push(text)
        return shown + (stop or ""), stop

    def flush(self) -> str:
        """See the contract."""
        return self._own.flush()
