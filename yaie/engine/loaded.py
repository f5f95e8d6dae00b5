"""What an engine is made of: a model, its backend, the parts in use, and the machine that runs them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from yaie.core.config import EngineConfig
from yaie.core.contracts import ApiServer
from yaie.core.errors import EngineDeadError
from yaie.engine.build import build, overlaps
from yaie.engine.configured import configured
from yaie.engine.drafting.loading import load_drafting
from yaie.engine.info import EngineInfo
from yaie.engine.input.processor import InputProcessor
from yaie.engine.loading import load_model
from yaie.engine.machine import Machine
from yaie.engine.step.counters import Counters
from yaie.engine.step.explaining import parts_in_steps
from yaie.engine.step.recovery import RecoveringMachine
from yaie.engine.step.thread_governor import governor_for
from yaie.parts import Part
from yaie.worker.parallel.launch import Launch
from yaie.worker.windows import held_of
from yaie.worker.worker import Worker as LocalWorker


class LoadedEngine:
    """Loads it, tells of it, and lets go of it.

    max_model_len: longest sequence, prompt and output together.
    pool_tokens: token slots in the KV pool. text_tokens: the longest text that it can serve.
    backend: what the kernels are written in, and which labs they come from.
    keeps_blocks: why blocks behind a window stay; "" if nothing is against it.
    """

    keeps_blocks: ClassVar[str] = ""

    def __init__(
        self, config: EngineConfig | None = None, *, launch: Launch | None = None, **settings: Any
    ) -> None:
        """Settings override `config`; without one, environment and file are read too. launch: which has
        started the other ranks, over hosts; None if they are to be started here.

        Raises ConfigError, ModelError, PartError, or KernelError for CUDA that does not compile.
        """
        self.config = configured(config, settings)
        self.backend, self._model, self._ranks = load_model(self.config, launch)
        try:
            self._make()
        except BaseException:
            if self._ranks is not None:
                self._ranks.close()
            raise

    def _make(self) -> None:
        """Put together what runs the model."""
        self._drafting = load_drafting(self.config, self._model, self.backend)
        self.max_model_len = self._model.max_length
        self._windows = held_of(
            self.config,
            self._model.adapter,
            self.max_model_len,
            has_head=self._drafting.head is not None,
            kept=self.keeps_blocks,
        )
        is_freed = self._windows is not None and not self._windows.kept
        self._held = self._windows if is_freed else None
        self._counters = Counters()
        threaded = overlaps(self.config, self._model)
        self._governor = governor_for(self.config, self._model.device, threaded=threaded)
        self._machine: Machine | RecoveringMachine = self._assembled()
        if self._governor is not None and isinstance(self._machine.worker, LocalWorker):
            self._governor.measure(self._machine.worker)
        sizes, held = self._machine.sizes, self._held
        self.pool_tokens = self.text_tokens = sizes.num_blocks * self.config.block_size
        self._full_texts = self.pool_tokens // self.max_model_len
        if held is not None and held.full:
            self._held = replace(held, num_blocks=sizes.num_windowed_blocks)
            self.text_tokens = min(self.pool_tokens, held.text_tokens(sizes.num_windowed_blocks))
            self._full_texts = min(self._full_texts, held.num_texts(sizes.num_windowed_blocks))
        elif held is not None:
            self.text_tokens = held.text_tokens(sizes.num_blocks)
            self._full_texts = (sizes.num_blocks - 1) // held.most
        self.input = InputProcessor(
            self.config, self._model, self.max_model_len, self.text_tokens, self.backend.parts
        )

    def _assembled(self) -> Machine | RecoveringMachine:
        def make(config: EngineConfig) -> Machine:
            return build(
                config,
                self.backend,
                self._model,
                self._counters,
                drafting=self._drafting,
                ranks=self._ranks,
                observers=[] if self._governor is None else [self._governor],
                held=self._held,
            )

        if self._ranks is None and parts_in_steps(self.backend.parts):
            return RecoveringMachine(make, self.config, self.backend.parts)
        return make(self.config)

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def model(self) -> Any:
        """The loaded model: tokenizer, dtype, device, sizes."""
        return self._model

    @property
    def tokenizer(self) -> Any:
        return self._model.tokenizer

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Fields of SamplingParams that hold for a request which does not give them."""
        return self._model.sampling_defaults

    @property
    def api(self) -> ApiServer:
        """The part that puts answers into OpenAI's shape."""
        api: ApiServer = self.backend.parts["api_server"]
        return api

    @property
    def parts(self) -> list[Part]:
        """Whose parts run."""
        return self.backend.parts.table()

    @property
    def info(self) -> EngineInfo:
        """The engine's constants, as plain data."""
        return EngineInfo.of(
            self.config,
            self._model,
            self.backend,
            max_model_len=self.max_model_len,
            pool_tokens=self.pool_tokens,
            text_tokens=self.text_tokens,
            full_texts=self._full_texts,
            decode_note=self._machine.note,
            states=self._machine.sizes.states(self.config.num_ranks),
            windows=self._windows_told,
        )

    @property
    def _windows_told(self) -> str:
        """What becomes of blocks behind a window, in words; "" if no layer has one."""
        if self._windows is None:
            return ""
        sizes, held = self._machine.sizes, self._held
        where = " on rank 0" if self.config.num_ranks > 1 else ""
        told, blocks = self._windows.told(sizes.bytes_per_block, where), self._machine.blocks
        which = ""
        if held is not None and held.full:
            told = held.told_of_groups(
                (sizes.num_blocks, sizes.bytes_per_block),
                (sizes.num_windowed_blocks, sizes.bytes_per_windowed_block),
                where,
            )
            cache: Any = self._machine.cache
            which, blocks = "their ", cache.windowed_blocks
        if held is None or not self.backend.parts.is_yours("paged_cache"):
            return told
        is_mine = type(blocks) is self.backend.parts["paged_cache"].BlockManager
        whose = "your" if is_mine else "its own"
        return f"{told}; {which}tables are the engine's, on {whose} BlockManager"

    @property
    def machine_parts(self) -> Machine | RecoveringMachine:
        """Scheduler, cache, blocks and tree, to be looked at. Another object after a part failed."""
        return self._machine

    def on_loss(self, tell: Callable[[EngineDeadError], None]) -> None:
        """Call this, on another thread, with the error when a rank is lost: the engine is dead then."""
        if self._ranks is not None:
            self._ranks.on_loss(tell)

    def close(self) -> None:
        """End the thread of the worker, if it has one, and other ranks. No step follows."""
        self._machine.worker.close()

    def check(self) -> None:
        """Verify the invariants of scheduler, tables, tree and blocks; raises InvariantError."""
        self._machine.scheduler.check()
        self._machine.cache.check()
