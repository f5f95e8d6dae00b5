"""Tasks 3.6 and 3.8: which chunks `allocate` notes, and when `commit` takes a note away."""

from functools import partial
from types import ModuleType

from grader.kit import task
from grader.suites.paged_cache import chunks
from grader.suites.paged_cache.chunks import noted


@task("3.6")
def test_a_chunk_is_noted_by_the_block_it_fills(part: ModuleType) -> None:
    """allocate notes a chunk that fills a block, from wherever it starts, and how far it goes."""
    noted(part, chunks.fills_a_block)


@task("3.6")
def test_a_generated_token_is_not_noted(part: ModuleType) -> None:
    """allocate notes no single token: what is generated may be filed much later."""
    noted(part, chunks.generates_a_token)


@task("3.6")
def test_drafts_are_not_noted(part: ModuleType) -> None:
    """allocate notes known tokens alone: of drafts it is not known whether they stay."""
    noted(part, chunks.verifies_drafts)


@task("3.6")
def test_generated_tokens_that_are_computed_again_are_noted(part: ModuleType) -> None:
    """allocate notes all known tokens that a preempted request computes again, not its prompt alone."""
    noted(part, chunks.computes_again)


@task("3.6")
def test_the_chunk_of_one_who_reuses_nothing_is_noted(part: ModuleType) -> None:
    """allocate notes the chunk of a request that may not reuse a prefix like any other chunk."""
    noted(part, chunks.reuses_nothing)


@task("3.6")
def test_a_chunk_without_room_is_not_noted(part: ModuleType) -> None:
    """allocate that answers False notes nothing: no step computes those tokens."""
    noted(part, chunks.has_no_room)


@task("3.8")
def test_a_note_stays_until_its_last_chunk_is_filed(part: ModuleType) -> None:
    """commit takes a note away when all is filed that it promises, not with the first result."""
    noted(part, partial(chunks.has_two_in_flight, by_commit=True))


@task("3.8")
def test_what_is_filed_is_noted_no_more(part: ModuleType) -> None:
    """commit takes a note away once all is filed that it promises: nothing is compared with it then."""
    noted(part, chunks.is_filed)
