"""What an engine hands out for a request."""

from yaie.core.output import RequestOutput


def test_an_output_counts_nothing_that_it_was_not_told() -> None:
    output = RequestOutput("a", "", [])
    counts = (output.num_output_tokens, output.num_prompt_tokens, output.num_cached_tokens)
    assert counts == (0, 0, 0)
    assert output.finish_reason is output.stop_reason is output.error is output.logprobs is None
