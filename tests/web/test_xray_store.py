"""The X-ray's store makes of the records what the engine's own structures held."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.marks import nightly_but
from tests.web.recorded import SAMPLES, SHIPPED, Recording, four
from tests.web.xray_pages import opened, serving

LOADS: dict[str, dict[str, Any]] = {
    "one after the other": {"every": 3, "num_blocks": 64},
    "a pool too small": {"every": 0, "num_blocks": 12},
    "a pool too small, swapped": {
        "every": 0,
        "num_blocks": 12,
        "preemption": "swap",
        "swap_space": 0.01,
    },
    "with drafts": {"every": 4, "num_blocks": 64, "speculate": "ngram", "endless": True},
    "prompts in chunks": {"every": 2, "num_blocks": 13, "token_budget": 20},
}

# What a state holds, in the words of `Watched._state`. Nodes end where the tree's own nodes end.
COMPARED = """
async ([lines, moves]) => {
  const { Store } = await import('./xray/store.js');
  const { nodesOf, numEvictable } = await import('./xray/tree-model.js');
  const shown = (state) => {
    const alive = [...state.requests.values()].filter(({ status }) => status !== 'finished');
    const of = (what) => Object.fromEntries(alive.map((each) => [each.id, each[what]]));
    const refs = {};
    for (const [chunk, counts] of state.refs) {
      counts.forEach((count, at) => { if (count) refs[chunk * counts.length + at] = count; });
    }
    return {
      running: state.running, waiting: state.waiting, refs,
      tables: Object.fromEntries(Object.entries(of('table')).filter(([, table]) => table.length)),
      tree: nodesOf(state.tree).map(({ blocks, locks }) => [blocks, locks]),
      evictable: numEvictable(state.tree),
      computed: of('computed'), output: of('output'), cached: of('cached'),
    };
  };
  const store = new Store(1000);
  const played = [];
  for (const line of lines) {
    store.push(line);
    if (line.kind === 'step') played.push(shown(store.state));
  }
  const scrubbed = moves.map((move) => { store.seek(move); return [store.cursor, shown(store.state)]; });
  return { played, scrubbed };
}
"""


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: Any) -> Iterator[Any]:  # noqa: F811
    """A page next to the modules, which tests import."""
    files = tmp_path_factory.mktemp("files")
    with serving(files) as address, opened(browser, f"{address}/viewer.html") as (page, _):
        yield page


@pytest.fixture(
    scope="module",
    params=nightly_but(("a pool too small", "prompts in chunks"), LOADS),
    ids=[name.replace(" ", "-") for name in LOADS],
)
def recording(request: Any) -> Recording:
    return four(**LOADS[request.param])


def sorted_tree(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"tree": sorted(state["tree"])}


@pytest.mark.nightly
def test_the_loads_do_what_they_are_for():
    """Else the comparison below would show little."""
    small = four(**LOADS["a pool too small"]).lines
    calls = [name for line in small for name, *_ in line.get("tree", [])]
    assert any(line.get("preempted") for line in small)
    assert {"match_prefix", "insert", "lock", "unlock", "evict"} <= set(calls)
    swapped = four(**LOADS["a pool too small, swapped"]).lines
    assert ["D", "swap"] in [each for line in swapped for each in line.get("preempted", [])]
    drafted = four(**LOADS["with drafts"]).lines
    rows = [row for line in drafted for row in line.get("rows", []) if row["drafts"]]
    assert {len(row["out"]) <= row["drafts"] for row in rows} == {True, False}
    chunked = four(**LOADS["prompts in chunks"]).lines
    starts = [row["start"] for line in chunked for row in line.get("rows", []) if row["id"] == "A"]
    assert starts[:3] == [0, 20, 40]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_recording_that_is_shipped_is_what_the_engine_does_today(name: str):
    def timeless(line: dict[str, Any]) -> dict[str, Any]:
        stats = {key: value for key, value in line.get("stats", {}).items() if key != "ttft"}
        rest = {key: value for key, value in line.items() if key not in ("t", "ms", "parts")}
        return rest | {"stats": stats}

    shipped = (SAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()
    recorded = json.loads(json.dumps(four(**SHIPPED[name]).lines))
    assert [*map(timeless, map(json.loads, shipped))] == [*map(timeless, recorded)]


def test_the_state_after_every_step_is_the_engine_s(page: Any, recording: Recording):
    result = page.evaluate(COMPARED, [recording.lines, []])
    assert len(result["played"]) == len(recording.states) > 40
    for number, (found, engine) in enumerate(
        zip(result["played"], recording.states, strict=True), start=1
    ):
        assert sorted_tree(found) == engine, f"after step {number}"


def test_scrubbing_shows_what_playing_showed(page: Any, recording: Recording):
    last = len(recording.states) - 1
    moves = [last, 0, 1, 24, 25, 26, 24, 7, 8, 9, 3, last, last - 1, -5, 0, 10_000, 30, 29]
    result = page.evaluate(COMPARED, [recording.lines, moves])
    for cursor, state in result["scrubbed"]:
        if cursor >= 0:
            assert sorted_tree(state) == recording.states[cursor]
    assert [cursor for cursor, _ in result["scrubbed"]][:3] == [last, 0, 1]


def test_a_reduction_changes_nothing_of_the_state_before(page: Any, recording: Recording):
    changed = page.evaluate(
        """async (lines) => {
          const { initial, reduce } = await import('./xray/reduce.js');
          const text = (state) => JSON.stringify(state, (_, value) => value instanceof Map ? [...value]
            : value instanceof Set ? [...value] : ArrayBuffer.isView(value) ? [...value] : value);
          let state = initial(lines[0]);
          return lines.slice(1).filter((line) => {
            const before = text(state), next = reduce(state, line), after = text(state);
            state = next;
            return before !== after;
          }).length;
        }""",
        recording.lines,
    )
    assert changed == 0


def test_the_last_thousand_steps_are_kept_and_right_after_the_first_are_dropped(page: Any):
    steps = [
        {
            "kind": "step",
            "n": number,
            "t": number / 100,
            "rows": [{"id": "a", "start": number, "num_tokens": 1, "out": [1], "text": "x"}],
            "refs": [[number % 300, 1]],
        }
        for number in range(1, 2345)
    ]
    found = page.evaluate(
        """async (steps) => {
          const { Store } = await import('./xray/store.js');
          const { countOf } = await import('./xray/counts.js');
          const store = new Store(1000);
          store.push({ kind: 'header', v: 1, num_blocks: 300 });
          for (const step of steps) store.push(step);
          const at = (index) => {
            store.seek(index);
            const { n, requests, refs } = store.state;
            return [n, requests.get('a').output, countOf(refs, 7), store.records[index].n];
          };
          return { kept: store.records.length, ends: [at(0), at(500), at(store.records.length - 1)] };
        }""",
        steps,
    )
    assert 1000 <= found["kept"] < 1025
    first = 2344 - found["kept"] + 1
    for number, output, references, recorded in found["ends"]:
        assert number == output == recorded
        assert references == (number - 7) // 300 + 1
    assert found["ends"][0][0] == first


def test_who_stays_behind_keeps_their_step_while_others_come(page: Any):
    found = page.evaluate(
        """async () => {
          const { Store } = await import('./xray/store.js');
          const store = new Store(100);
          store.push({ kind: 'header', v: 1 });
          const add = (from, to) => {
            for (let n = from; n <= to; n += 1) store.push({ kind: 'step', n, t: n });
          };
          add(1, 90);
          store.seek(80);
          const before = store.state.n;
          add(91, 140);
          const [record, last] = [store.records[store.cursor].n, store.records.at(-1).n];
          return { before, after: store.state.n, record, last };
        }"""
    )
    assert found == {"before": 81, "after": 81, "record": 81, "last": 140}


@pytest.mark.parametrize("dropped", [0, 30], ids=["whole", "from the middle"])
def test_a_saved_recording_opens_as_what_was_saved(page: Any, recording: Recording, dropped: int):
    result = page.evaluate(
        """async ([lines, dropped]) => {
          const { Store } = await import('./xray/store.js');
          const { parse, serialise } = await import('./xray/recording.js');
          const { snapshotOf } = await import('./xray/snapshot.js');
          const store = new Store(dropped ? lines.length - 1 - dropped : 1000);
          lines.forEach((line) => store.push(line));
          const text = serialise(store);
          const again = new Store(1000);
          parse(text).forEach((line) => again.push(line));
          const states = (one) => one.records.map((_, index) => {
            one.seek(index);
            return snapshotOf(one.state);
          });
          const first = parse(text)[1].kind;
          return { first, count: again.records.length, mine: states(store), theirs: states(again) };
        }""",
        [recording.lines, dropped],
    )
    assert result["first"] == ("snapshot" if dropped else "step")
    assert result["count"] >= len(recording.states) - dropped
    assert result["mine"] == result["theirs"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no header"),
        ('{"kind": "step", "n": 1}\n', "no header"),
        ('{"kind": "header", "v": 1}\n{"kind": "st', "Line 2"),
        ('{"kind": "header", "v": 99}\n', "format 99"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(page: Any, text: str, said: str):
    assert said in page.evaluate(
        """async (text) => {
          const { parse } = await import('./xray/recording.js');
          try { parse(text); return 'accepted'; } catch (error) { return error.message; }
        }""",
        text,
    )


def test_events_are_found_however_the_stream_is_cut(page: Any):
    sent = [{"kind": "header", "v": 1}, {"kind": "step", "n": 1, "text": "a\n\nb: data: ü"}]
    stream = ": hello\n\n" + "".join(
        f"event: record\r\ndata: {json.dumps(each, ensure_ascii=False)}\r\n\r\n" for each in sent
    )
    found = page.evaluate(
        """async (stream) => {
          const { eventsIn } = await import('./xray/source.js');
          return Array.from({ length: stream.length }, (_, cut) => {
            const one = eventsIn(stream.slice(0, cut)), other = eventsIn(one.rest + stream.slice(cut));
            return [...one.events, ...other.events].map(JSON.parse);
          });
        }""",
        stream,
    )
    assert all(each == sent for each in found)


def test_a_stream_that_begins_again_goes_on_where_nothing_was_missed(page: Any):
    found = page.evaluate(
        """async () => {
          const { Store } = await import('./xray/store.js');
          const { snapshotOf } = await import('./xray/snapshot.js');
          const header = { kind: 'header', v: 1, num_blocks: 8 };
          const store = new Store(100);
          const step = (n) => ({ kind: 'step', n, t: n, refs: [[n, 1]] });
          [header, step(1), step(2), step(3)].forEach((line) => store.push(line));
          const state = snapshotOf(store.state);
          [{ ...header }, state, step(4)].forEach((line) => store.push(line));
          const without = store.records.map(({ n }) => n);
          [{ ...header }, { ...state, n: 9 }, step(10)].forEach((line) => store.push(line));
          const gap = store.records.map(({ n }) => n);
          [{ ...header, num_blocks: 9 }].forEach((line) => store.push(line));
          return { without, gap, other: store.records.length };
        }"""
    )
    assert found == {"without": [1, 2, 3, 4], "gap": [10], "other": 0}
