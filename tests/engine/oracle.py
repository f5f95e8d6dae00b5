"""transformers' own greedy tokens for a set of prompts: what the engine must produce, exactly."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from tests.models.halves import whole_model

LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100)


def make_prompts(count: int, vocab: int, seed: int = 0) -> list[list[int]]:
    """Prompts of mixed length around the block boundaries; every fourth begins like the one before."""
    rng = random.Random(seed)
    prompts: list[list[int]] = []
    for i in range(count):
        length = LENGTHS[i % len(LENGTHS)]
        prompt = [rng.randrange(3, vocab) for _ in range(length)]
        if i % 4 == 3:
            shared = prompts[-1][: length - 1]
            prompt = shared + prompt[len(shared) :]
        prompts.append(prompt)
    return prompts


def reference(folder: Path) -> Any:
    """transformers' own model, in float32.

    That of 5.20 computes Gemma 2 by an attention that leaves its soft cap out, unless told not to.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    if config.get_text_config(decoder=True) is not config:
        return whole_model(folder)
    capped = getattr(config, "attn_logit_softcapping", None)
    how = {"attn_implementation": "eager"} if capped else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how).eval()


def last_logits(folder: Path, prompts: list[list[int]]) -> list[torch.Tensor]:
    """transformers' logits [vocab] after each prompt, in float32."""
    model = reference(folder)
    with torch.inference_mode():
        return [model(torch.tensor([prompt])).logits[0, -1] for prompt in prompts]


def greedy(
    folder: Path, prompts: list[list[int]], max_tokens: int
) -> tuple[list[list[int]], list[float]]:
    """What `generate` of transformers gives in float32, and how close each output came to another.

    Equal lengths are batched, so that none is padded. The second list holds each output's smallest
    distance between the best and the second best logit: where that is rounding error, transformers
    itself answers differently from one batch size to the next.
    """
    model = reference(folder)
    by_length: dict[int, list[int]] = defaultdict(list)
    for i, prompt in enumerate(prompts):
        by_length[len(prompt)].append(i)
    outputs: list[list[int]] = [[] for _ in prompts]
    margins = [0.0] * len(prompts)
    for length, members in by_length.items():
        ids = torch.tensor([prompts[i] for i in members])
        with torch.inference_mode():
            generated = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=max_tokens,
                max_new_tokens=max_tokens,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
        best, second = torch.stack(generated.logits).topk(2).values.unbind(-1)
        for column, (i, row) in enumerate(zip(members, generated.sequences.tolist(), strict=True)):
            outputs[i] = row[length:]
            margins[i] = float((best - second)[:, column].min())
    return outputs, margins
