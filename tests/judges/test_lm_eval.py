"""EleutherAI's evaluation harness: through the server it finds what its own `hf` model finds.

Both read the same weights in float32. Tasks and documents are made here, so nothing is fetched.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.judges.programs import DIRECT, OFFLINE, ONE_THREAD, installed, replica
from yaie.models.tutor import TUTOR_PATH

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

MAX_LOGPROB_DIFFERENCE = 1e-3
Json = dict[str, Any]

QUESTION = "<|begin_of_text|><|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
STATEMENTS = [
    ("A paged KV cache keeps keys and values in", " blocks"),
    ("The scheduler admits a request when", " blocks are free"),
    ("The scheduler admits a request when", " the moon is full"),
    ("Prefill computes", " the keys and values of the whole prompt"),
    ("Radix attention reuses", " the prefixes that requests share"),
    ("Naïve café, 日本語:", " 🙂 Straße"),
    ("x", "y"),
    ("A sampler draws the next token from", " the logits,\nafter temperature and top-p"),
]  # fmt: skip
ASKED = ["What is a KV cache?", "What is a block table?", "What does a scheduler do?"]
CHOICES = [
    ("A block table maps", [" logical blocks to physical blocks", " birds to trees", " red"], 0),
    ("Decode computes", [" one token for each sequence", " bananas"], 0),
]
QUESTIONS = [
    "What is a paged KV cache?",
    "What is a block table?",
    "What is the difference between prefill and decode?",
    "Why are prefixes shared?",
    "日本語で答えて 🙂",
    "How many bytes does the KV cache of 100 tokens take?",
]
TEXTS = ["The KV cache grows with every token.", "Straße, 日本語 and 🙂.", "word " * 200]

# The tasks, and the kind of request that each makes.
KINDS = {
    "answers": "generate_until",
    "turns": "generate_until",
    "statements": "loglikelihood",
    "choices": "multiple_choice",
    "texts": "loglikelihood_rolling",
}
TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{text}}}}"
doc_to_target: "{target}"
num_fewshot: 0
{rest}
"""
GENERATION = """target_delimiter: ""
generation_kwargs:
  until: ["\\n\\n", "block table"]
  do_sample: false
  temperature: 0
  max_gen_toks: 48
metric_list: [{metric: exact_match}]
"""


def write_task(folder: Path, name: str, documents: list[Json], target: str, rest: str) -> None:
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents), "utf-8")
    task = TASK.format(name=name, file=file, kind=KINDS[name], target=target, rest=rest)
    (folder / f"{name}.yaml").write_text(task, "utf-8")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    installed("lm_eval")
    options = ("--dtype=float32", "--served-model-name=tutor", "--num-blocks=1024")
    with replica(TUTOR_PATH, *options) as (_, url):
        yield url


@pytest.fixture(scope="module")
def tasks(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task of every kind of request that the harness makes."""

    def continued(text: str) -> str:
        body = {"prompt": text, "temperature": 0, "max_tokens": 8}
        answer = httpx.post(f"{server}/v1/completions", json=body, timeout=60, trust_env=False)
        said: str = answer.raise_for_status().json()["choices"][0]["text"]
        return said

    folder = tmp_path_factory.mktemp("tasks")
    statements = [{"text": text, "target": target} for text, target in STATEMENTS]
    for question in ASKED:  # the tutor's own words are greedy; they must begin in mid-sentence,
        # because the harness counts white space before a continuation as part of it
        begun = QUESTION.format(question)
        begun += continued(begun)
        statements.append({"text": begun, "target": continued(begun)})
    write_task(folder, "statements", statements, "{{target}}", 'target_delimiter: ""')
    choices = [{"text": t, "choices": list(c), "gold": gold} for t, c, gold in CHOICES]
    write_task(folder, "choices", choices, "{{gold}}",
               'target_delimiter: ""\ndoc_to_choice: "{{choices}}"')  # fmt: skip
    rolling = [{"text": text} for text in TEXTS]
    write_task(folder, "texts", rolling, "{{text}}",
               "metric_list: [{metric: word_perplexity}]")  # fmt: skip
    answers = [{"text": QUESTION.format(text), "target": ""} for text in QUESTIONS]
    write_task(folder, "answers", answers, "{{target}}", GENERATION)
    turns = [{"text": text, "target": ""} for text in QUESTIONS]  # for the chat template
    write_task(folder, "turns", turns, "{{target}}", GENERATION)
    return folder


def evaluate(folder: Path, names: list[str], model: str, arguments: Json, *options: str) -> Json:
    """Run the harness on these tasks; its answers ("resps") by task and document."""
    output = Path(tempfile.mkdtemp(dir=folder))
    command = [
        installed("lm_eval"), "run", "--model", model, "--model_args", json.dumps(arguments),
        "--include_path", str(folder), "--tasks", ",".join(names), "--log_samples",
        "--output_path", str(output), *options,
    ]  # fmt: skip
    environment = {**os.environ, **OFFLINE, **ONE_THREAD, **DIRECT, "OPENAI_API_KEY": "none",
                   "HF_HOME": str(folder / "cache")}  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    answers: Json = {}
    for name in names:
        (file,) = output.rglob(f"samples_{name}_*.jsonl")
        samples = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        answers[name] = {sample["doc_id"]: sample["resps"] for sample in samples}
    return answers


@pytest.fixture(scope="module")
def expected(tasks: Path) -> Json:
    """What the harness finds with its own model."""
    arguments = {"pretrained": str(TUTOR_PATH), "dtype": "float32"}
    return evaluate(tasks, list(KINDS), "hf", arguments, "--device=cpu")


def through(server: str, **more: Any) -> Json:
    """Arguments of the harness's client. 2,048 is the tutor's context, which `hf` reads itself."""
    return {
        "model": "tutor",
        "base_url": f"{server}/v1/completions",
        "tokenizer": str(TUTOR_PATH),
        "tokenizer_backend": "huggingface",
        "max_length": 2048,
        **more,
    }


def judgements(answers: Json) -> list[tuple[str, float, bool | None]]:
    """(task, log-probability, is greedy) of every continuation; a whole text has no last one."""
    found: list[tuple[str, float, bool | None]] = []
    for name in ("statements", "choices", "texts"):
        for _, choices in sorted(answers[name].items()):
            for (answer,) in choices:
                if isinstance(answer, str):
                    found.append((name, float(answer), None))
                else:
                    found.append((name, float(answer[0]), answer[1] == "True"))
    return found


@pytest.mark.parametrize(
    ("arguments", "options"),
    [({}, []), ({}, ["--batch_size=4"]), ({"num_concurrent": 8}, [])],
    ids=["one by one", "batches", "concurrently"],
)
def test_completions_agree_with_the_harness_own_model(
    server: str, tasks: Path, expected: Json, arguments: Json, options: list[str]
) -> None:
    there = through(server, **arguments)
    found = evaluate(tasks, list(KINDS), "local-completions", there, *options)
    assert found["answers"] == expected["answers"]
    mine, theirs = judgements(found), judgements(expected)
    assert [(name, greedy) for name, _, greedy in mine] == [(n, g) for n, _, g in theirs]
    assert any(len(answer[0][0]) > 100 for answer in found["answers"].values())
    largest = max(abs(a - b) for (_, a, _), (_, b, _) in zip(mine, theirs, strict=True))
    print(f"{len(mine)} log-probabilities, largest difference {largest:.2e}")
    assert largest < MAX_LOGPROB_DIFFERENCE
    # Had the documents only answers of one kind, the flags would say nothing.
    assert {True, False} <= {greedy for _, _, greedy in mine}


def test_chat_completions_agree_with_the_harness_own_model(server: str, tasks: Path) -> None:
    own = {"pretrained": str(TUTOR_PATH), "dtype": "float32"}
    template = "--apply_chat_template"
    wanted = evaluate(tasks, ["turns"], "hf", own, template, "--device=cpu")
    there = {"model": "tutor", "base_url": f"{server}/v1/chat/completions"}
    assert evaluate(tasks, ["turns"], "local-chat-completions", there, template) == wanted
    assert any(len(answer[0][0]) > 100 for answer in wanted["turns"].values())


def test_tokenizer_of_the_server_serves_as_well(server: str, tasks: Path, expected: Json) -> None:
    """The harness asks it for token counts where it has no tokenizer of its own."""
    arguments = through(server, tokenizer=None, tokenizer_backend="remote")
    found = evaluate(tasks, list(KINDS), "local-completions", arguments)
    assert found["answers"] == expected["answers"]
    assert [g for _, _, g in judgements(found)] == [g for _, _, g in judgements(expected)]
