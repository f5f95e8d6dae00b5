"""The figures `kv-growth`, `roofline` and `online-softmax` count and sum right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from book.tools.figures import load_figure
from yaie.models.tutor import TUTOR_PATH

BOOK = Path(__file__).parents[2] / "book"
MODELS: dict[str, dict[str, Any]] = load_figure("kv-growth")["data"]["models"]
ROOFLINE = json.loads((BOOK / "traces/roofline.json").read_text("utf-8"))
SOFTMAX = json.loads((BOOK / "traces/online-softmax.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "kv-growth", "roofline"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def sizes(page: Any, model: str, **settings: float) -> dict[str, float]:
    result: dict[str, float] = page.evaluate(
        "([model, settings]) => kvGrowth.sizes(model, settings)", [MODELS[model], settings]
    )
    return result


def cost(page: Any, model: str, machine: str = "h200", **step: int) -> dict[str, Any]:
    """A step on the roofline: step is sequences, tokens, cached."""
    result: dict[str, Any] = page.evaluate(
        "([model, machine, step]) => roofline.step(model, machine, step)",
        [ROOFLINE["models"][model], ROOFLINE["machines"][machine], step],
    )
    return result


def test_the_tutor_s_shape_is_that_of_its_config():
    config = json.loads((TUTOR_PATH / "config.json").read_text("utf-8"))
    names = {
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "hidden": "hidden_size",
        "ffn": "intermediate_size",
        "vocab": "vocab_size",
        "context": "max_position_embeddings",
        "tied": "tie_word_embeddings",
    }
    assert {name: MODELS["tutor"][name] for name in names} == {
        name: config[field] for name, field in names.items()
    }


def as_transformers(shape: dict[str, Any]) -> torch.nn.Module:
    """A model of that shape without weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

    config = (Qwen3Config if shape.get("qk_norm") else LlamaConfig)(
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["ffn"],
        vocab_size=shape["vocab"],
        tie_word_embeddings=shape.get("tied", False),
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=None,
    )
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(config)
    return model


@pytest.mark.parametrize("name", [name for name in MODELS if "latent" not in MODELS[name]])
def test_parameters_are_those_of_a_model_of_that_shape(name):
    model = as_transformers(MODELS[name])
    assert MODELS[name]["parameters"] == sum(tensor.numel() for tensor in model.parameters())


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [
        ("llama-8b", 128 * 1024),
        ("llama-8b-mha", 512 * 1024),
        ("llama-70b", 320 * 1024),
        ("qwen3-06b", 112 * 1024),
        ("deepseek-v3", 61 * 576 * 2),
        ("tutor", 4 * 1024),
    ],
)
def test_a_token_takes_what_its_keys_and_values_take(page, model, bytes_a_token):
    found = sizes(page, model, tokens=1, requests=3, width=2, weightWidth=2, device=24e9)
    assert found["token"] == bytes_a_token
    assert found["token"] == found["layer"] * MODELS[model]["layers"]
    assert (found["request"], found["all"]) == (bytes_a_token, 3 * bytes_a_token)


def test_as_many_requests_fit_as_the_question_says(page):
    set_ = {"tokens": 8192, "requests": 1, "width": 2, "weightWidth": 2, "device": 24e9}
    found = sizes(page, "llama-8b", **set_)
    assert found["fits"] == load_figure("kv-growth")["predict"]["number"]
    assert found["weights"] + found["fits"] * found["request"] <= 24e9
    assert found["weights"] + (found["fits"] + 1) * found["request"] > 24e9


def test_no_request_fits_where_the_weights_do_not(page):
    set_ = {"tokens": 128, "requests": 1, "width": 2, "weightWidth": 2, "device": 80e9}
    assert sizes(page, "llama-70b", **set_)["fits"] == 0


@pytest.mark.parametrize(("sequences", "tokens", "cached"), [(1, 12, 0), (3, 1, 40), (2, 5, 7)])
def test_the_flops_of_a_step_are_those_that_torch_counts(page, sequences, tokens, cached):
    """torch counts the whole square of scores; its causal part is put in its place here."""
    from torch.utils.flop_counter import FlopCounterMode

    shape = ROOFLINE["models"]["tutor"]
    model = as_transformers(MODELS["tutor"])
    model.config._attn_implementation = "eager"
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        model(torch.zeros(sequences, cached + tokens, dtype=torch.long), logits_to_keep=1)
    length = cached + tokens
    a_token = 2 * sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    )
    pair = 4 * shape["layers"] * shape["heads"] * shape["head_dim"]
    # From torch's count of a whole prompt to ours of its last tokens, keys that are seen only.
    seen = sum(range(cached + 1, length + 1))
    expected = counter.get_total_flops() - sequences * (
        a_token * cached + pair * (length * length - seen)
    )
    found = cost(page, "tutor", sequences=sequences, tokens=tokens, cached=cached)
    assert found["flops"] == expected


def test_a_decode_step_reads_weights_once_and_keys_and_values_of_every_request(page):
    # Without the embedding, of which a step reads a few rows, and the norms.
    shape = MODELS["llama-8b"]
    norms = (2 * shape["layers"] + 1) * shape["hidden"]
    weights = 2 * (shape["parameters"] - shape["vocab"] * shape["hidden"] - norms)
    found = cost(page, "llama-8b", sequences=32, tokens=1, cached=1024)
    assert found["weightBytes"] == weights
    # 1,024 cached tokens and the new one are read, the new one is written.
    assert found["kvBytes"] == 32 * 131072 * (1024 + 2)


def test_a_point_lies_on_the_roof_and_the_bound_is_the_side_of_the_ridge(page):
    machine = ROOFLINE["machines"]["h200"]
    ridge = machine["compute"][1] / machine["bandwidth"]
    for tokens in (1, 16, 128, 512, 4096):
        found = cost(page, "llama-8b", sequences=1, tokens=tokens, cached=0)
        slope = found["intensity"] * machine["bandwidth"]
        assert found["attainable"] == pytest.approx(min(machine["compute"][1], slope))
        assert found["bound"] == ("compute" if found["intensity"] > ridge else "memory")


def test_the_roofline_s_question_has_its_numbers_right(page):
    low, high = (
        cost(page, "llama-8b", sequences=batch, tokens=1, cached=8192) for batch in (16, 64)
    )
    assert (round(low["intensity"], 1), round(high["intensity"], 1)) == (9.6, 14.8)
    assert (round(low["kvBytes"] / 1e9), round(low["weightBytes"] / 1e9)) == (17, 15)


@pytest.mark.parametrize("cached", [1024, 8192, 131072])
def test_a_full_card_takes_no_further_request(page, cached):
    model, machine = ROOFLINE["models"]["llama-8b"], ROOFLINE["machines"]["h200"]
    fits = page.evaluate(
        "([model, machine, cached]) => roofline.room(model, machine, cached)",
        [model, machine, cached],
    )
    weights = 2 * MODELS["llama-8b"]["parameters"]  # with the embedding
    each = 2 * 2 * 32 * 8 * 128 * (cached + 1)
    assert weights + fits * each <= machine["memory"] < weights + (fits + 1) * each
    assert fits == {1024: 997, 8192: 124, 131072: 7}[cached]


def test_a_processor_s_memory_is_not_drawn(page):
    model, machine = ROOFLINE["models"]["tutor"], ROOFLINE["machines"]["cpu"]
    assert page.evaluate(
        "([model, machine]) => roofline.room(model, machine, 1024) === Infinity", [model, machine]
    )


def test_online_softmax_ends_where_softmax_does():
    scores = torch.tensor(SOFTMAX["tiles"], dtype=torch.float64).flatten()
    values = torch.tensor(SOFTMAX["values"], dtype=torch.float64).flatten()
    expected = float(scores.softmax(0) @ values)
    last = SOFTMAX["steps"][-1]
    assert last["output"] == pytest.approx(expected, abs=1e-6)
    assert last["now"]["o"] / last["now"]["l"] == pytest.approx(expected, abs=1e-5)


def test_after_each_tile_the_registers_are_those_of_all_scores_so_far():
    steps = [step for step in SOFTMAX["steps"] if step["phase"] == "add"]
    assert len(steps) == len(SOFTMAX["tiles"])
    for number, step in enumerate(steps, 1):
        scores = torch.tensor(SOFTMAX["tiles"][:number], dtype=torch.float64).flatten()
        values = torch.tensor(SOFTMAX["values"][:number], dtype=torch.float64).flatten()
        weights = (scores - scores.max()).exp()
        expected = {"m": scores.max(), "l": weights.sum(), "o": weights @ values}
        assert step["now"] == pytest.approx({k: float(v) for k, v in expected.items()}, abs=1e-5)


def test_the_tiles_show_a_new_maximum_and_one_that_is_not():
    factors = [step["factor"] for step in SOFTMAX["steps"] if step["phase"] == "rescale"]
    assert factors[0] == 0
    assert factors[1] == pytest.approx(load_figure("online-softmax")["predict"]["number"], abs=1e-3)
    assert factors[2] == 1
