"""Task 3.9: which chunks are waited for."""

from types import ModuleType

from grader.kit import task
from grader.suites.paged_cache import chunks


@task("3.9")
def test_a_chunk_counts_by_the_block_it_fills(part: ModuleType) -> None:
    """A chunk that fills a block makes others wait, from wherever it starts; one that fills none not."""
    chunks.fills_a_block(part)


@task("3.9")
def test_a_generated_token_makes_nobody_wait(part: ModuleType) -> None:
    """A single token that fills a block is not waited for: what is generated may be filed much later."""
    chunks.generates_a_token(part)


@task("3.9")
def test_drafts_make_nobody_wait(part: ModuleType) -> None:
    """A token and three drafts are no chunk: of drafts it is not known whether they stay."""
    chunks.verifies_drafts(part)


@task("3.9")
def test_generated_tokens_that_are_computed_again_are_a_chunk(part: ModuleType) -> None:
    """A preempted request computes its generated tokens again in a chunk: others wait for that."""
    chunks.computes_again(part)


@task("3.9")
def test_who_reuses_nothing_makes_others_wait(part: ModuleType) -> None:
    """The chunk of a request that may reuse no prefix itself makes others wait all the same."""
    chunks.reuses_nothing(part)


@task("3.9")
def test_a_chunk_without_room_is_not_waited_for(part: ModuleType) -> None:
    """allocate that answers False notes nothing: no step computes those tokens."""
    chunks.has_no_room(part)
