"""Which of transformers' families are served, how, and why the others are not.

    python -m yaie.bench.evidence.families [NAME ...]

With names, only these are tried, and the other verdicts stay. All of them take ten minutes.

For the page "Loading a model": every family that transformers continues texts with, alone or beside
images and sounds, by a small random model of it. Served means that all greedy tokens of a few prompts
are those that transformers computes without a cache: alone, together, in chunks, with cached prefixes.
"""

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.shrunk import CONTEXT, VOCAB, shrunk
from yaie.bench.report import save
from yaie.core.errors import ModelError
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.models.generic import GenericAdapter
from yaie.models.layer_kinds import unheld_layers
from yaie.models.skeleton import made
from yaie.models.supported import check_architecture

OUT = EVIDENCE / "families.json"
LENGTHS, NUM_TOKENS, CHUNK = (5, 17, 40, 41), 8, 16
MOST_PARAMETERS = 60_000_000
MARGIN = 1e-3
"""Between the best token's logit and the second's: nearer ones are decided by rounding."""

Verdict = dict[str, str]


def main() -> None:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    torch.set_num_threads(1)
    every, asked = sorted(names().items()), sys.argv[1:]
    families = json.loads(OUT.read_text("utf-8"))["families"] if asked else {}
    for model_type, architecture in every:
        if asked and model_type not in asked:
            continue
        with tempfile.TemporaryDirectory() as folder:
            families[model_type] = tried(model_type, architecture, Path(folder))
    record = {
        "command": "python -m yaie.bench.evidence.families",
        "workload": f"random models of 4 layers; prompts of {LENGTHS}, {NUM_TOKENS} greedy tokens",
        "counts": dict(Counter(verdict["is"] for verdict in families.values())),
        "families": families,
    }
    save(str(OUT), record)


def names() -> dict[str, str]:
    """model_type and architecture of every family that continues texts."""
    from transformers.models.auto import modeling_auto as auto

    tables: list[dict[str, Any]] = [
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    ]
    found: dict[str, str] = {}
    for table in tables:
        for model_type, names in table.items():
            found.setdefault(model_type, names if isinstance(names, str) else names[0])
    return found


def tried(model_type: str, architecture: str, folder: Path) -> Verdict:
    """How a family is served, or why not. is: "own", "generic", "half own", "half generic", "refused",
    "differs", or "untried" where no small model of it can be made. why: in words, for the last three."""
    try:
        known = refusal(model_type, architecture)
    except Exception as error:  # noqa: BLE001 (of a family's own defaults)
        return {"is": "untried", "why": _short(error)}
    try:
        model = random_model(model_type, architecture)
        write(model, folder)
        expected = [greedy(model, prompt) for prompt in prompts()]
    except Exception as error:  # noqa: BLE001 (each family checks its configuration in its own way)
        if known:
            return {"is": "refused", "why": known}
        return {"is": "untried", "why": _short(error)}
    try:
        kind, answers = served(folder)
    except ModelError as error:
        return {"is": "refused", "why": reason(error)}
    wanted = [tokens for tokens, _ in expected]
    decided = [margin > MARGIN for _, margin in expected]
    for name, tokens in answers.items():
        pairs = zip(tokens, wanted, decided, strict=False)
        if not all(ours == theirs for ours, theirs, clear in pairs if clear):
            return {"is": "differs", "why": name}
    limit = known.rpartition("--max-model-len) to ")[2] if "--max-model-len" in known else ""
    return {"is": kind, **({"up to": limit} if limit else {})}


def refusal(model_type: str, architecture: str) -> str:
    """What is known against a family as its configuration is by default; "" if nothing is."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type]()
    inner = config.get_text_config(decoder=True)
    if inner is not config:
        return unheld_layers(inner, None)
    try:
        check_architecture(architecture, config)
    except ModelError as error:
        return reason(error)
    return ""


def reason(error: ModelError) -> str:
    """What a refusal says between its beginning and its end."""
    text = error.message.partition("is not supported: ")[2] or error.message
    return text.partition(". What works")[0]


def random_model(model_type: str, architecture: str) -> Any:
    """A small model of a family, with weights that lie far apart. Raises ValueError for a large one."""
    import transformers

    config = shrunk(model_type)
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        size = sum(one.numel() for one in made(kind, config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"a small one has {size:,} parameters")
    torch.manual_seed(0)
    model = made(kind, config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.25 if parameter.dim() > 1 else parameter + noise * 0.3)
    return model.float()


def write(model: Any, folder: Path) -> None:
    """Checkpoint and tokenizer, as they are published."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    words = {f"<{number}>": number for number in range(VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<3>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<1>").save_pretrained(folder)


def prompts() -> list[list[int]]:
    """The last two begin alike."""
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randint(5, 300, (n,), generator=generator).tolist() for n in LENGTHS]
    drawn[-1] = drawn[-2] + drawn[-1][-1:]
    return drawn


@torch.inference_mode()
def greedy(model: Any, prompt: list[int]) -> tuple[list[int], float]:
    """transformers' tokens, each by a run over the whole text; and how near the nearest decision was."""
    tokens, margin = list(prompt), float("inf")
    for _ in range(NUM_TOKENS):
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].float()
        if not torch.isfinite(logits).all():
            raise ValueError("its logits are not finite")
        best = logits.topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :], margin


def served(folder: Path) -> tuple[str, dict[str, list[list[int]]]]:
    """(kind, answers by how they were asked for). Raises ModelError."""
    engine = LLMEngine(
        model=str(folder),
        device="cpu",
        num_blocks=64,
        token_budget=CHUNK,
        max_model_len=CONTEXT // 2,
    )
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)

    def run(asked: list[list[int]]) -> list[list[int]]:
        requests = [engine.add_request(prompt, params)[0] for prompt in asked]
        while engine.has_work:
            engine.step()
        return [list(request.output_token_ids) for request in requests]

    generic = isinstance(engine.model.adapter, GenericAdapter)
    kind = f"{'half ' if engine.model.left_out else ''}{'generic' if generic else 'own'}"
    asked = prompts()
    return kind, {"alone": run(asked[:1]), "together": run(asked), "again": run(asked)}


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:200]


if __name__ == "__main__":
    main()
