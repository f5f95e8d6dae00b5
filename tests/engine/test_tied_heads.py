"""Checkpoints whose embedding and output head are not what `tie_word_embeddings` says of them: the
tokens are transformers'."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams

PROMPTS = [[5, 9, 33, 70, 12], [200, 7]]
NUM = 8


def damaged(family: str, folder: Path, mode: str) -> Path:
    """A checkpoint that says its head is tied, and has another head, an equal one, or the head alone."""
    tiny_model(family, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": True}))
    weights = load_file(folder / "model.safetensors")
    table = next(name for name in weights if name.endswith(("embed_tokens.weight", "wte.weight")))
    if mode == "another":
        torch.manual_seed(5)
        weights["lm_head.weight"] = 0.25 * torch.randn_like(weights[table])
    elif mode == "equal":
        weights["lm_head.weight"] = weights[table].clone()
    else:
        weights["lm_head.weight"] = weights.pop(table)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("mode", ["another", "equal", "alone"])
@pytest.mark.parametrize("family", ["llama-tied", "qwen3", "gpt2", "gemma2", "cohere"])
def test_heads_are_tied_as_transformers_ties_them(family: str, mode: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = damaged(family, tmp_path / "model", mode)
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    engine = LLMEngine(model=str(folder), num_blocks=20, max_model_len=64, mine="none")
    for prompt in PROMPTS:
        wanted = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=NUM, do_sample=False, eos_token_id=None
        )[0, len(prompt) :]
        params = SamplingParams(temperature=0, max_tokens=NUM, ignore_eos=True)
        (request,) = engine.add_request(prompt, params)
        while engine.has_work:
            engine.step()
        assert request.token_ids[len(prompt) :] == wanted.tolist()
