"""Which states are kept behind which blocks, which go first, and how chunks are cut for them."""

import pytest

from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from solutions.scheduler import POLICIES, Scheduler
from solutions.state_cache import Checkpoints, cut_share
from yaie.core.batch import StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus
from yaie.engine.states.awaited import WORTH, AwaitedCheckpoints
from yaie.engine.states.stage import DECODED, CheckpointStage, Moves
from yaie.engine.states.tree import CheckpointedTree

SIZE = 4
FIRST = 100


def running(length: int = 40, name: str = "r") -> Request:
    request = Request(name, list(range(length)), SamplingParams(), max_tokens=200)
    request.status = RequestStatus.RUNNING
    return request


class Rig:
    """A scheduler on the reference cache, whose plans pass the stage. The worker draws token 7."""

    def __init__(self, count: int = 8, budget: int = 1000, num_blocks: int = 200) -> None:
        self.checkpoints = AwaitedCheckpoints(Checkpoints(FIRST, count), count)
        tree = RadixTree(SIZE)
        self.tree = CheckpointedTree(tree, self.checkpoints)
        self.stage = CheckpointStage(tree, self.checkpoints, cut_share)
        cache = self.cache = KVCacheManager(BlockManager(num_blocks, SIZE, 0), self.tree)
        self.scheduler = Scheduler(
            cache, POLICIES["fcfs"](cache), max_num_seqs=8, token_budget=budget
        )
        self.moves: list[Moves] = []
        self.num_asked = 0

    def step(self) -> StepPlan:
        plan = self.scheduler.schedule()
        self.stage.extend(plan)
        self.moves += [ask for ask in plan.asks if isinstance(ask, Moves)]
        self.scheduler.advance(plan)
        self.scheduler.update(plan, [[7] for item in plan.scheduled if item.samples])
        self.scheduler.check()
        return plan

    def ask(self, tokens: list[int], steps: int = 1) -> Request:
        """Queue a request, and step so often."""
        self.num_asked += 1
        name, rank = f"r{self.num_asked}", self.num_asked
        request = Request(name, tokens, SamplingParams(), max_tokens=200, arrival=rank)
        self.scheduler.add(request)
        for _ in range(steps):
            self.step()
        return request

    def end(self, request: Request, reason: FinishReason = FinishReason.LENGTH) -> None:
        self.scheduler.finish(request, reason)


def test_the_least_recently_used_gives_way() -> None:
    checkpoints, request = Checkpoints(FIRST, 4), running()
    slots = [checkpoints.save(request, block, 1) for block in (10, 11)]
    assert slots == [FIRST, FIRST + 1]
    assert checkpoints.save(request, 12, 1) is None  # those that run have half of all
    checkpoints.file([10], [10])
    checkpoints.file([11], [11])
    for block in (12, 13):
        checkpoints.save(request, block, 1)
        checkpoints.file([block], [block])
    checkpoints.use(10)
    assert checkpoints.save(request, 14, 1) == FIRST + 1
    assert sorted(checkpoints.filed) == [10, 12, 13]


def test_a_state_is_filed_behind_the_block_that_the_tree_kept() -> None:
    checkpoints = Checkpoints(FIRST, 4)
    checkpoints.save(running(), 11, 2)
    checkpoints.file([10, 11], [20, 21])
    assert list(checkpoints.filed) == [21]
    checkpoints.save(running(), 31, 2)
    checkpoints.file([30, 31], [20, 21])  # another one had computed the same
    assert list(checkpoints.filed) == [21]
    assert checkpoints.num_pending == 0


def test_at_another_depth_a_block_is_another_prefix() -> None:
    checkpoints = Checkpoints(FIRST, 4)
    checkpoints.save(running(), 11, 2)
    checkpoints.file([11, 12], [11, 12])
    assert not list(checkpoints.filed)


@pytest.mark.parametrize("ends", ["finished", "preempted", "again"])
def test_what_will_not_be_filed_is_free_again(ends: str) -> None:
    checkpoints, request = Checkpoints(FIRST, 2), running()
    assert checkpoints.save(request, 10, 1) == FIRST
    checkpoints.sweep()
    assert checkpoints.save(running(), 11, 1) is None
    if ends == "finished":
        request.status = RequestStatus.FINISHED
    elif ends == "preempted":
        request.status = RequestStatus.PREEMPTED
    else:
        request.num_preemptions += 1
    checkpoints.sweep()
    assert checkpoints.save(running(), 11, 1) == FIRST


def test_a_checkpoint_goes_with_its_block() -> None:
    rig = Rig()
    rig.end(rig.ask(list(range(41)), steps=2))
    assert len(list(rig.checkpoints.filed)) == 1
    assert rig.tree.evict(2)
    assert not list(rig.checkpoints.filed)
    assert rig.tree.num_blocks == 8


def test_a_prompt_is_cut_behind_its_last_whole_block() -> None:
    rig = Rig()
    rig.scheduler.add(first := Request("a", list(range(41)), SamplingParams(), max_tokens=9))
    [item] = rig.step().scheduled
    assert (item.num_tokens, item.samples) == (40, False)
    [item] = rig.step().scheduled
    assert (item.num_tokens, item.samples) == (1, True)
    again = rig.ask(list(range(41)))
    assert again.num_cached_tokens == 40
    assert rig.moves[-1].resumed == {again: FIRST}
    assert first.num_output_tokens == 2


def test_a_prompt_that_spares_little_is_not_cut() -> None:
    rig = Rig()
    [item] = (rig.ask(list(range(WORTH * SIZE)), steps=0), rig.step().scheduled)[1]
    assert item.samples
    [_, item] = (rig.ask(list(range(50, 51 + WORTH * SIZE)), steps=0), rig.step().scheduled)[1]
    assert item.num_tokens == WORTH * SIZE


def test_where_texts_part_a_state_is_kept_for_the_third() -> None:
    rig, shared = Rig(), list(range(32))
    found = [rig.ask([*shared, *[at] * 33], steps=3).num_cached_tokens for at in (50, 60, 70)]
    assert found == [0, 0, 32]


def test_who_would_need_a_state_waits_while_another_gets_there() -> None:
    """All of a crowd but the first two are spared what they share."""
    rig, shared = Rig(), list(range(32))
    rig.ask([*shared, *[50] * 33], steps=3)
    crowd = [rig.ask([*shared, *[at] * 33], steps=0) for at in (60, 70, 80)]
    rig.step()
    assert [one.status for one in crowd] == ["running", "waiting", "waiting"]
    rig.step()
    assert [one.num_cached_tokens for one in crowd] == [0, 32, 32]
    assert all(one.status == "running" for one in crowd)


@pytest.mark.parametrize("ends", ["aborted", "without slots"])
def test_nobody_waits_for_a_state_that_will_not_come(ends: str) -> None:
    rig, shared = Rig(count=0 if ends == "without slots" else 8), list(range(32))
    rig.ask([*shared, *[50] * 33], steps=3)
    first, second = (rig.ask([*shared, *[at] * 33], steps=0) for at in (60, 70))
    if ends == "aborted":
        rig.step()
        rig.end(first, FinishReason.ABORT)
    rig.step()
    assert second.status == "running"


def test_chunks_that_the_budget_cuts_end_with_a_block() -> None:
    rig = Rig(budget=23)
    shares = []
    rig.ask(list(range(100)), steps=0)
    for _ in range(5):
        [item] = rig.step().scheduled
        shares.append(item.num_tokens)
    assert shares == [20, 20, 20, 20, 16]
    assert rig.ask([*range(61), 7, 7], steps=2).num_cached_tokens == 60


def test_of_decodes_the_newest_state_is_kept() -> None:
    rig = Rig(count=4)
    prompt = list(range(41))
    first = rig.ask(prompt, steps=2 + 2 * DECODED * SIZE + 9)
    assert rig.checkpoints.num_pending == 1
    rig.end(first)
    assert rig.checkpoints.num_pending == 0
    answer = first.token_ids
    turn = rig.ask([*answer, 1, 2, 3], steps=1)
    assert turn.num_cached_tokens == (10 + 2 * DECODED) * SIZE


@pytest.mark.parametrize("count", [0, 8])
@pytest.mark.parametrize("most", [1, 3, 9])
def test_drafts_pass_no_place_where_a_state_is_kept(count: int, most: int) -> None:
    """All are right, which takes a request as far as they go. Without slots it soon is not held up."""
    rig, ends, held_up = Rig(count=count), [], 0
    request = rig.ask(list(range(9)), steps=1)
    while request.num_tokens < 9 + (2 * DECODED + 3) * SIZE:
        plan = rig.scheduler.schedule()
        rig.stage.extend(plan)
        [item] = plan.scheduled
        number = min(most, rig.stage.most_drafts(item))
        if any(isinstance(ask, Moves) for ask in plan.asks):
            assert number == 0
            ends.append(item.start + 1)
        held_up += number < most
        assert rig.cache.allocate(request, item.start + 1 + number)
        item.drafts, item.num_tokens = [7] * number, 1 + number
        rig.scheduler.advance(plan)
        rig.scheduler.update(plan, [[7] * (1 + number)])
        rig.scheduler.check()
    places = [DECODED * SIZE, 2 * DECODED * SIZE]
    assert ends == (places if count else [])
    assert held_up <= 6


def test_a_request_that_fails_files_nothing() -> None:
    rig = Rig()
    request = Request("a", list(range(41)), SamplingParams(), max_tokens=9)
    rig.scheduler.add(request)
    plan = rig.scheduler.schedule()
    rig.stage.extend(plan)
    rig.scheduler.advance(plan)
    rig.end(request, FinishReason.ERROR)
    assert rig.checkpoints.num_pending == 1
    rig.ask(list(range(50, 60)))
    assert rig.checkpoints.num_pending == 0
    assert not list(rig.checkpoints.filed)


def test_without_slots_nothing_is_cut() -> None:
    rig = Rig(count=0)
    rig.ask(list(range(41)), steps=0)
    assert [item.samples for item in rig.step().scheduled] == [True]
    assert rig.moves == []
