"""A class for each peer: loads a model, and runs requests that were queued at once.

Each is set up as its own documentation says and otherwise left at its defaults. vllm and sglang get
token ids and give token ids back: unlike our engine, they need not turn them into text.
"""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol

Settings = dict[str, Any]
Ids = list[list[int]]


class Engine(Protocol):
    """version: for the record."""

    version: str

    def forget(self) -> None:
        """Empty the prefix cache."""

    def run(self, prompts: Ids, outputs: list[int], temperature: float) -> list[int]:
        """Run every prompt to its output's length; returns the lengths that came of it."""
        ...

    def close(self) -> None:
        """End what was started."""


class Vllm:
    """`vllm.LLM`."""

    def __init__(self, settings: Settings) -> None:
        options: Settings = {}
        if settings["device"] == "cpu":
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
            # Its engine and its worker as two processes would take the cores of a small machine from
            # each other: on two of them it is nearly twice as fast in one.
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
            options["enforce_eager"] = True
        if "memory_share" in settings:
            options["gpu_memory_utilization"] = settings["memory_share"]
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        vllm = import_module("vllm")
        self.version = str(vllm.__version__)
        self._params = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=settings["model"],
            dtype=settings["dtype"],
            max_model_len=settings["max_model_len"],
            enable_prefix_caching=settings["prefix_caching"],
            skip_tokenizer_init=True,
            seed=settings["seed"],
            **options,
        )

    def forget(self) -> None:
        """See `Engine`."""
        self._llm.reset_prefix_cache()

    def run(self, prompts: Ids, outputs: list[int], temperature: float) -> list[int]:
        """See `Engine`."""
        params = [
            self._params(
                temperature=temperature, ignore_eos=True, max_tokens=length, detokenize=False
            )
            for length in outputs
        ]
        results = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
        )
        return [len(result.outputs[0].token_ids) for result in results]

    def close(self) -> None:
        """See `Engine`. Its processes end with this one."""


class Sglang:
    """`sglang.Engine`."""

    def __init__(self, settings: Settings) -> None:
        sglang = import_module("sglang")
        self.version = str(sglang.__version__)
        self._engine = sglang.Engine(
            model_path=settings["model"],
            dtype=settings["dtype"],
            context_length=settings["max_model_len"],
            disable_radix_cache=not settings["prefix_caching"],
            skip_tokenizer_init=True,
            random_seed=settings["seed"],
        )

    def forget(self) -> None:
        """See `Engine`."""
        self._engine.flush_cache()

    def run(self, prompts: Ids, outputs: list[int], temperature: float) -> list[int]:
        """See `Engine`."""
        params = [
            {"temperature": temperature, "ignore_eos": True, "max_new_tokens": length}
            for length in outputs
        ]
        results = self._engine.generate(input_ids=prompts, sampling_params=params)
        return [result["meta_info"]["completion_tokens"] for result in results]

    def close(self) -> None:
        """See `Engine`."""
        self._engine.shutdown()


class Transformers:
    """`generate` on left-padded static batches, each running until its longest output is done."""

    def __init__(self, settings: Settings) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        if settings["threads"] is not None:
            torch.set_num_threads(settings["threads"])
        dtype = getattr(torch, settings["dtype"])
        model: Any = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype)
        self._model = model.to(settings["device"]).eval()
        self._batch = settings["batch"]
        self.version = version("transformers")
        # What is compiled for these numbers of rows is compiled once in a process.
        self.run([[0] * 8] * self._batch, [2] * self._batch, 0.0)

    def forget(self) -> None:
        """See `Engine`. Nothing is kept between two calls."""

    def run(self, prompts: Ids, outputs: list[int], temperature: float) -> list[int]:
        """See `Engine`. Batches are made in order of arrival."""
        for start in range(0, len(prompts), self._batch):
            end = start + self._batch
            self._generate(prompts[start:end], max(outputs[start:end]), temperature)
        return outputs

    def close(self) -> None:
        """See `Engine`."""

    def _generate(self, prompts: Ids, num_tokens: int, temperature: float) -> None:
        import torch

        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        drawing: Settings = {"do_sample": False}
        if temperature:
            drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            result = self._model.generate(
                ids.to(self._model.device),
                attention_mask=mask.to(self._model.device),
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
                eos_token_id=None,
                pad_token_id=0,
                **drawing,
            )
        if result.shape[1] != width + num_tokens:
            raise RuntimeError(f"generate ended after {result.shape[1] - width} tokens")


class Static:
    """Our own engine in static batches of `max_num_seqs`: the next begins when the last request ends."""

    def __init__(self, settings: Settings) -> None:
        from yaie import __version__
        from yaie.core.config import EngineConfig
        from yaie.engine.llm_engine import LLMEngine

        self.version = __version__
        # The overlapped loop does not go with batches whose rows end together.
        config = settings["config"] | {"batching": "static", "overlap": "off"}
        self._engine = LLMEngine(EngineConfig(**config))

    def forget(self) -> None:
        """See `Engine`. `run` does it."""

    def run(self, prompts: Ids, outputs: list[int], temperature: float) -> list[int]:
        """See `Engine`."""
        from yaie.bench.throughput.contestants import run_at_once
        from yaie.bench.workload import Job

        jobs = [Job(prompt, length) for prompt, length in zip(prompts, outputs, strict=True)]
        return [len(output) for output in run_at_once(self._engine, jobs, temperature).outputs]

    def close(self) -> None:
        """See `Engine`."""
        self._engine.close()


ENGINES: dict[str, Callable[[Settings], Engine]] = {
    "vllm": Vllm,
    "sglang": Sglang,
    "transformers": Transformers,
    "static": Static,
}
