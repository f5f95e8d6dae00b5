"""The figures of hybrid models reckon as the engine's functions and the exercises do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from book.tools.exercises import MODELS as SHAPES
from book.tools.figures import load_figure
from yaie.backends.states.naive import NaiveStateOps
from yaie.core.compat import tomllib
from yaie.core.contracts.states import StateBatch

BOOK = Path(__file__).parents[2] / "book"
TRACKS: dict[str, dict[str, Any]] = json.loads(
    (BOOK / "traces/state-absorbs.json").read_text("utf-8")
)["tracks"]
MODELS: dict[str, dict[str, Any]] = load_figure("state-memory")["data"]["models"]
PUBLISHED = tomllib.loads(SHAPES.read_text("utf-8"))["models"]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "calculator", "state-memory"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def of(page: Any, call: str, *arguments: Any) -> Any:
    return page.evaluate(f"(given) => {call}(...given)", list(arguments))


def matrices(track: dict[str, Any]) -> list[torch.Tensor]:
    """Behind each token of a track's text, by the plain definition."""
    found = []
    pool = torch.full((1, 1, 4, 4), torch.nan)
    for at, token in enumerate(track["tokens"]):
        k, v = (torch.tensor(token[name], dtype=torch.float32).view(1, 1, 4) for name in "kv")
        decay, beta = torch.tensor([[0.9]]), torch.ones(1, 1)
        starts = torch.tensor([0, 1], dtype=torch.int32)
        batch = StateBatch([1], starts, torch.tensor([0]), torch.tensor([at == 0]))
        NaiveStateOps().gated_delta_rule(k, k, v, decay.log(), beta, pool, batch)
        found.append(pool[0, 0].clone())
    return found


@pytest.mark.parametrize("name", TRACKS)
def test_a_matrix_is_what_the_delta_rule_makes_of_the_tokens_before(name: str) -> None:
    track = TRACKS[name]
    expected = matrices(track)
    assert track["steps"][-1]["count"] == len(track["tokens"]) == 10
    for state in track["steps"]:
        if state["count"]:
            close(state["matrix"], expected[state["count"] - 1])
        for kept in state["kept"]:
            assert kept["count"] <= state["count"]
            close(kept["matrix"], expected[kept["count"] - 1])
        assert [kept["count"] for kept in state["kept"]] == [4, 8][: state["count"] // 4]


def close(shown: list[list[float]], expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.tensor(shown), expected, atol=2e-5, rtol=1e-4)


def test_a_second_text_goes_on_from_the_last_copy_and_not_from_the_last_block() -> None:
    one, two = TRACKS["one"], TRACKS["two"]
    assert one["tokens"][: two["shared"]] == two["tokens"][: two["shared"]]
    assert one["tokens"][two["shared"]] != two["tokens"][two["shared"]]
    first, *rest = two["steps"]
    assert (first["cached"], first["resumed"], first["count"]) == (6, 4, 4)
    assert [state["count"] for state in rest] == [5, 6, 7, 8, 9, 10]
    assert "2 tokens must be computed again" in first["say"]


def test_the_key_of_the_question_reads_its_third_value() -> None:
    tokens = TRACKS["one"]["tokens"]
    places = [at for at, token in enumerate(tokens) if token["word"] == "the"]
    assert len(places) == 3
    key = tokens[0]["k"]
    for at, token in enumerate(tokens):
        across = sum(a * b for a, b in zip(key, token["k"], strict=True))
        assert across == (at in places)
        assert sum(value * value for value in token["k"]) == pytest.approx(1)
    last = TRACKS["one"]["steps"][places[2] + 1]
    assert last["matrix"][0] == pytest.approx(tokens[places[2]]["v"])
    assert "Now “the” reads (0, −4, 0, 6)." in last["say"]


def test_shapes_are_those_of_the_exercises() -> None:
    assert {name.replace("-", "_") for name in MODELS} < set(PUBLISHED)
    for name, drawn in MODELS.items():
        published = PUBLISHED[name.replace("-", "_")]
        for key, value in drawn.items():
            snake = re.sub("([A-Z])", lambda found: f"_{found[0].lower()}", key)
            snake = {"rows": "state_rows", "columns": "state_columns"}.get(snake, snake)
            assert published[snake] == value, key


@pytest.mark.parametrize(
    ("name", "token", "layer"),
    [
        ("lfm2-1b", 6 * 2048, 2048 * 2 * 2),
        ("qwen35-4b", 8 * 4096, 32 * 128 * 128 * 4 + 8192 * 3 * 2),
        ("granite4-h-micro", 4 * 2048, 64 * 64 * 128 * 4 + 4352 * 3 * 2),
    ],
)
def test_memory_is_keys_values_states_and_copies(
    page: Any, name: str, token: int, layer: int
) -> None:
    model = MODELS[name]
    state = model["stateLayers"] * layer
    found = of(page, "stateMemory.sizes", model, {"tokens": 10_000, "spacing": 4096})
    layers = model["attentionLayers"] + model["stateLayers"]
    assert found == {
        "kv": 10_000 * token,
        "state": state,
        "copies": 2 * state,
        "all": 10_000 * token + 3 * state,
        "everywhere": 10_000 * token / model["attentionLayers"] * layers,
    }
    crossing = of(page, "stateMemory.crossing", model)
    there = of(page, "stateMemory.sizes", model, {"tokens": crossing, "spacing": 0})
    assert there["all"] == pytest.approx(there["everywhere"])


def test_what_the_question_on_memory_says(page: Any) -> None:
    found = of(page, "stateMemory.sizes", MODELS["qwen35-4b"], {"tokens": 100, "spacing": 0})
    shown = [round(found[name] / 1e6, 1) for name in ("kv", "state", "everywhere")]
    assert shown == [3.3, 51.5, 13.1]
    assert found["all"] / found["everywhere"] == pytest.approx(4.2, abs=0.05)
