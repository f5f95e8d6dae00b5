"""What rounding costs the tutor, and what it saves, for chapter "Quantization".

    python -m book.tutor.quantization

The tutor's held-out questions, answered greedily by the transformers library in float32 on weights that
were rounded and turned back, and by the engine with keys and values in INT8; and how far the rounded
tutor's distributions are from its own, on conversations that calibration has not seen. Shares, bytes and
nats: no times.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from book.tutor.dialogues import dialogues
from book.tutor.evaluate import Tutor, is_right
from book.tutor.held_out import Question, held_out_questions
from solutions import quantization
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.models.rounding import Recipe, decoder_layers, products, round_model, windows
from yaie.models.tutor import TUTOR_PATH

OUT = EVIDENCE / "quantization.json"
QUESTIONS = 300
KV_QUESTIONS = 100
KV_TOKENS = 64
WINDOWS, WINDOW, SEED = 32, 512, 19
"""Of calibration: as `yaie quantize` takes them."""
UNSEEN = 23
"""Seed of the conversations on which distributions are compared."""
RECIPES = {
    "int8": Recipe(8),
    "nearest_32": Recipe(4, 32, gptq=False),
    "gptq_32": Recipe(4, 32),
    "nearest_32_zeros": Recipe(4, 32, gptq=False, symmetric=False),
    "gptq_32_zeros": Recipe(4, 32, symmetric=False),
    "nearest_128": Recipe(4, 128, gptq=False),
    "gptq_128": Recipe(4, 128),
    "gptq_128_zeros": Recipe(4, 128, symmetric=False),
}


def main() -> None:
    asked = held_out_questions(count=QUESTIONS)
    tutor = Tutor(TUTOR_PATH)
    before = _answers(tutor, asked)
    unseen = windows(tutor.tokenizer, _texts(UNSEEN), WINDOW, WINDOWS)
    own = _logprobs(tutor, unseen)
    figures: dict[str, Any] = {"float": {"right": _right(asked, before)}}
    for name, recipe in RECIPES.items():
        tutor, figures[name] = _rounded(recipe, asked, before, figures["float"]["right"])
        theirs = _logprobs(tutor, unseen)
        figures[name]["nats"] = float((own.exp() * (own - theirs)).sum(dim=-1).mean())
        print(name, figures[name], flush=True)
    kv = _kv(asked[:KV_QUESTIONS])
    print(kv)
    save(
        str(OUT),
        {
            "command": "python -m book.tutor.quantization",
            "workload": f"{QUESTIONS} held-out questions, greedy answers of at most 160 tokens; of the "
            f"pool {KV_QUESTIONS} of them, {KV_TOKENS} tokens; of the distributions {WINDOWS} windows "
            f"of {WINDOW} tokens",
            "questions": QUESTIONS,
            "weights": figures,
            "kv": kv,
        },
    )


def _rounded(
    recipe: Recipe, asked: list[Question], before: list[str], right: float
) -> tuple[Tutor, dict[str, float]]:
    """right: share of answers with all facts. kept: of the float tutor's share. same: word for word."""
    tutor = Tutor(TUTOR_PATH)
    calibration = windows(tutor.tokenizer, _texts(SEED), WINDOW, WINDOWS) if recipe.gptq else None
    _, layers = decoder_layers(tutor.model)
    numbers = sum(p.weight.numel() for layer in layers for _, p in products(layer))
    packed = round_model(tutor.model, quantization, recipe, calibration)
    after = _answers(tutor, asked)
    share = _right(asked, after)
    return tutor, {
        "bits": 8 * sum(weight.nbytes for weight in packed.values()) / numbers,
        "right": share,
        "kept": share / right,
        "same": sum(a == b for a, b in zip(after, before, strict=True)) / len(asked),
    }


@torch.inference_mode()
def _logprobs(tutor: Tutor, tokens: Tensor) -> Tensor:
    """Of every next token, [all tokens, vocab]."""
    logits = [tutor.model(few).logits.flatten(0, 1) for few in tokens.split(8)]
    return torch.cat(logits).log_softmax(dim=-1)


def _texts(seed: int) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(TUTOR_PATH)
    talks = dialogues(seed, 20 * WINDOWS)
    return [tokenizer.apply_chat_template(talk, tokenize=False) for talk in talks]


def _answers(tutor: Tutor, asked: list[Question]) -> list[str]:
    talks = [[{"role": "user", "content": question.text}] for question in asked]
    return [answer.text for answer in tutor.answer(talks)]


def _right(asked: list[Question], answers: list[str]) -> float:
    return sum(is_right(q, a) for q, a in zip(asked, answers, strict=True)) / len(asked)


def _kv(asked: list[Question]) -> dict[str, float]:
    """same: share of questions with the same greedy tokens. share: of bfloat16's bytes of a slot."""
    params = SamplingParams(temperature=0, max_tokens=KV_TOKENS)
    texts = {}
    for kind in ("auto", "int8"):
        engine = LLMEngine(mine="none", kv_dtype=kind, backend="torch")
        tokenizer = AutoTokenizer.from_pretrained(TUTOR_PATH)
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": q.text}], tokenize=False, add_generation_prompt=True
            )
            for q in asked
        ]
        ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
        texts[kind] = engine.generate(ids, params)
    same = sum(a == b for a, b in zip(texts["auto"], texts["int8"], strict=True)) / len(asked)
    head_dim = 32
    return {"same": same, "share": (head_dim + 2) / (2 * head_dim)}


if __name__ == "__main__":
    main()
