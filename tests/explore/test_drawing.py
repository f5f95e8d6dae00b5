"""What the notebooks draw with: the shapes behind the pictures."""

import json
from collections.abc import Iterator

import pytest

import solutions.api_server
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from solutions.scheduler import POLICIES, Scheduler, StaticScheduler
from yaie.explore import draw, timeline
from yaie.explore.timeline import Job
from yaie.explore.tree import TreeView


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_names_get_distinct_colours_in_order():
    assert draw.colours("abab") == {"a": draw.BLUE, "b": draw.ORANGE}
    assert draw.ink_on(draw.BLUE) == draw.PAPER
    assert draw.ink_on(draw.YELLOW) == draw.INK


def test_a_tree_is_seen_through_its_public_methods():
    view = TreeView(RadixTree(4))
    view.insert("abcdefghijkl")
    [whole] = view.shown()
    assert (whole.texts, whole.blocks) == (["abcd", "efgh", "ijkl"], [0, 1, 2])
    view.insert("abcdefghIJKL")
    [upper] = view.shown()
    assert upper.blocks == [0, 1]
    assert [child.blocks for child in upper.children] == [[2], [3]]


def test_a_node_that_was_handed_out_is_a_node():
    view = TreeView(RadixTree(4))
    view.insert("abcdefghijkl")
    blocks, node = view.match("abcdXXXX")
    view.lock(node)
    assert blocks == [0]
    [upper] = view.shown()
    assert (upper.blocks, upper.locked) == ([0], 1)
    assert (upper.children[0].blocks, upper.children[0].locked) == ([1, 2], 0)


def test_what_was_evicted_is_gone_from_the_next_picture():
    view = TreeView(RadixTree(4))
    view.insert("abcdefgh")
    before = view.shown()
    fig, ax = draw.figure(4, 2)
    view.draw(ax, nodes=before, gone=view.evict(1))
    fig.canvas.draw()
    assert [node.blocks for node in view.shown()] == [[0]]
    view.evict(1)
    assert view.shown() == []


def engine(kind: type, num_blocks: int = 32, **settings: int) -> tuple:
    cache = KVCacheManager(BlockManager(num_blocks, 4), RadixTree(4))
    scheduler = kind(
        cache, POLICIES["fcfs"](cache), **{"max_num_seqs": 2, "token_budget": 8} | settings
    )
    return scheduler, cache


def test_a_timeline_has_prompts_outputs_and_who_waits():
    jobs = [Job("a", 4, 2), Job("b", 6, 1), Job("c", 2, 1, arrives=1)]
    steps = timeline.play(*engine(Scheduler), jobs)
    assert [step.tokens for step in steps] == [{"a": 4, "b": 4}, {"a": 1, "b": 2}, {"c": 2}]
    assert [step.output for step in steps] == [set(), {"a"}, set()]
    assert steps[1].waiting == {"c"}
    assert "3 steps, 13 tokens computed, 0" in timeline.summary(steps)


def test_a_timeline_shows_preemption_and_what_a_static_batch_wastes():
    jobs = [Job("a", 7, 6), Job("b", 7, 6)]
    steps = timeline.play(*engine(Scheduler, num_blocks=4, token_budget=16), jobs)
    assert any(step.preempted for step in steps)
    steps = timeline.play(*engine(StaticScheduler), [Job("a", 2, 1), Job("b", 2, 3)])
    assert [step.wasted for step in steps] == [set(), {"a"}, {"a"}]
    fig, ax = draw.figure(6, 4)
    timeline.draw(ax, steps, [Job("a", 2, 1), Job("b", 2, 3)], "static")
    draw.legend(ax, timeline.LEGEND, hatched=timeline.WASTED)
    fig.canvas.draw()


def text(answer) -> str:
    events = [json.loads(event) for _, event in answer.events() if event != "[DONE]"]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)


def test_a_client_keeps_what_came_and_when():
    from tests.server.fake_engine import FakeEngine
    from yaie.explore.wire import Client

    client = Client(solutions.api_server, FakeEngine())
    client.start()
    try:
        chat = {"messages": [{"role": "user", "content": "abc"}], "stream": True}
        answer = client.post("/v1/chat/completions", chat)
        assert answer.status == 200
        assert answer.events()[-1][1] == "[DONE]"
        times = [at for at, _ in answer.events()]
        assert times == sorted(times)
        left = client.post("/v1/chat/completions", chat, leave_after=1)
        assert text(answer).startswith(
            text(left)
        )  # how it is cut into events is a matter of timing
        assert client.get("/v1/nothing").status == 404
    finally:
        client.stop()


def test_a_board_leaves_a_margin_around_its_boxes():
    _, ax = draw.figure(3, 2)
    draw.board(ax, 5, 4, "a title")
    assert ax.get_xlim() == (-0.2, 5.2)
    assert ax.get_ylim() == (4.2, -0.2)  # downwards
    assert ax.get_title(loc="left") == "a title"
    draw.box(ax, 0, 0, "", draw.BLUE)
    assert len(ax.texts) == 0
    draw.box(ax, 1, 0, 7, draw.BLUE)
    assert [text.get_text() for text in ax.texts] == ["7"]


def test_a_heat_map_has_lines_between_its_cells_and_a_cross_on_what_is_hidden():
    _, ax = draw.figure(3, 2)
    image = draw.heat(ax, [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], hidden=[[0, 0, 1], [0, 0, 0]])
    assert image.get_array().shape == (2, 3)
    assert ax.get_xticks(minor=True).tolist() == [-0.5, 0.5, 1.5, 2.5]
    assert ax.get_yticks(minor=True).tolist() == [-0.5, 0.5, 1.5]
    assert [text.get_text() for text in ax.texts] == ["×"]


def test_a_picture_is_shown_once(monkeypatch):
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(1))
    fig, _ = draw.figure(3, 2)
    draw.show(fig)
    assert shown == [1]
