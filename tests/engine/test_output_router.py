"""Each output reaches the caller it is for, whoever steps the engine."""

from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.output_router import OutputRouter


def requests(*names: str) -> list[Request]:
    return [Request(name, [1], SamplingParams()) for name in names]


def output(name: str, token: int = 1, *, last: bool = False) -> RequestOutput:
    reason = FinishReason.STOP if last else None
    return RequestOutput(name, str(token), [token], reason)


def test_without_claims_all_outputs_wait_for_the_caller_of_step() -> None:
    router = OutputRouter()
    assert not router.has_unclaimed
    router.put([output("a"), output("b", last=True)])
    router.put([output("a", 2)])
    assert router.has_unclaimed
    taken = router.take_unclaimed()
    assert [(one.request_id, one.token_ids) for one in taken] == [
        ("a", [1]),
        ("b", [1]),
        ("a", [2]),
    ]
    assert not router.has_unclaimed
    assert router.take_unclaimed() == []


def test_claimed_outputs_are_kept_for_their_caller_in_order() -> None:
    router = OutputRouter()
    ours, theirs = router.claim(requests("a", "b")), router.claim(requests("c"))
    router.put([output("c"), output("a"), output("d"), output("b")])
    router.put([output("b", 2)])
    assert [(one.request_id, one.token_ids[0]) for one in ours.take()] == [
        ("a", 1),
        ("b", 1),
        ("b", 2),
    ]
    assert [one.request_id for one in theirs.take()] == ["c"]
    assert [one.request_id for one in router.take_unclaimed()] == ["d"]
    assert list(ours.take()) == []


def test_claim_counts_the_requests_whose_last_output_has_not_come() -> None:
    router = OutputRouter()
    claim = router.claim(requests("a", "b"))
    router.put([output("a"), output("b")])
    assert claim.num_unfinished == 2
    router.put([output("b", last=True)])
    assert claim.num_unfinished == 1
    router.put([output("a", last=True)])
    assert claim.num_unfinished == 0
    assert len(list(claim.take())) == 4  # what has come stays there


def test_id_that_is_used_again_belongs_to_nobody_s_old_claim() -> None:
    router = OutputRouter()
    old = router.claim(requests("a"))
    router.put([output("a", last=True)])
    router.put([output("a", 5)])
    assert [one.token_ids for one in router.take_unclaimed()] == [[5]]
    new = router.claim(requests("a"))
    router.put([output("a", 6)])
    assert [one.token_ids for one in old.take()] == [[1]]
    assert [one.token_ids for one in new.take()] == [[6]]


def test_dropped_request_is_waited_for_no_more() -> None:
    router = OutputRouter()
    claim = router.claim(requests("a", "b"))
    router.drop("a")
    router.drop("a")  # twice is harmless, and so is one that nobody claimed
    router.drop("unknown")
    assert claim.num_unfinished == 1
    router.put([output("b", last=True)])
    router.drop("b")
    assert claim.num_unfinished == 0


def test_outputs_that_come_while_a_caller_takes_are_taken_too() -> None:
    router = OutputRouter()
    claim = router.claim(requests("a"))
    router.put([output("a", 1)])
    taken = []
    for one in claim.take():
        taken += one.token_ids
        if one.token_ids == [1]:
            router.put([output("a", 2), output("a", 3, last=True)])
    assert taken == [1, 2, 3]
