"""What a run of the command shares: the model, who competes on it, and what is written down."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from yaie.bench.limits import Ceilings, Limit, ModelCost, measure_ceilings
from yaie.bench.peers.process import Peer, settings_for
from yaie.bench.report import command_line
from yaie.bench.throughput.asked import STATIC_BATCHES, Asked
from yaie.bench.throughput.drawn import TEMPERATURES, described
from yaie.bench.workload import LONGEST_GEOMETRIC, Job
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.llm_engine import LLMEngine
from yaie.models.config import read_config
from yaie.models.hub import resolve_model
from yaie.models.loader import ModelLoader


@dataclass(slots=True)
class Setting:
    """The model as far as it is known before weights are loaded, and `cost` from then on (a text says
    why there is none)."""

    config: EngineConfig
    asked: Asked
    folder: str
    name: str
    dtype: Any
    device: str
    max_model_len: int
    vocab_size: int
    cost: ModelCost | str = "no engine was loaded"
    backend: str = ""

    @classmethod
    def of(cls, config: EngineConfig, asked: Asked) -> "Setting":
        """Finds the model, and downloads what is missing. Raises ModelError or ConfigError."""
        folder, name = resolve_model(config.model, config.revision, progress=False)
        loader = ModelLoader(config)
        vocab_size = read_config(folder).get_text_config().vocab_size
        return cls(
            config, asked, str(folder), name, loader.dtype, loader.device.type, loader.max_length,
            vocab_size,
        )  # fmt: skip

    @property
    def in_turn(self) -> bool:
        """Whether contestants may share the machine: on a GPU each wants most of the memory."""
        return self.device == "cpu"

    @property
    def temperature(self) -> float:
        return TEMPERATURES[self.asked.workload]

    def look(self, engine: LLMEngine) -> None:
        """Note what only a loaded engine tells, and show whose parts run."""
        show_parts(engine.parts, brief=True)
        lengths = self.asked.lengths
        longest = lengths.prompt[1] + max(lengths.output[1], LONGEST_GEOMETRIC)
        if self.config.pipeline_parallel > 1:
            self.cost = "no limit is known for stages, which take turns"
        else:
            self.cost = ModelCost.of(engine.model, longest, self.config.tensor_parallel)
        self.backend = engine.backend.name

    def peers(self, runs: Sequence[Sequence[Job]]) -> list[Peer]:
        """Those that were asked for, to carry out these runs; transformers once for each batch size.

        Raises ConfigError for static if ours batches so itself."""
        if "static" in self.asked.peers and self.config.batching == "static":
            raise ConfigError("with --batching static, the peer static is the same", param="peer")
        settings = settings_for(
            self.config, self.folder, str(self.dtype).removeprefix("torch."), self.device,
            self.max_model_len,
        )  # fmt: skip
        found = []
        for kind in self.asked.peers:
            names: dict[str, dict[str, Any]] = {kind: settings}
            if kind == "transformers":
                names = {
                    f"transformers generate, static batches of {size}": settings | {"batch": size}
                    for size in self.asked.batches or STATIC_BATCHES
                }
            elif kind == "static":
                names = {our_name(replace(self.config, batching="static")): settings}
            found += [
                Peer(name, kind, chosen, runs, self.temperature, self.asked.peer_python)
                for name, chosen in names.items()
            ]
        return found

    def limit(self) -> Limit | str:
        """The model on this machine, measured now; why there is none."""
        if isinstance(self.cost, str):
            return self.cost
        return Limit(self.cost, self.ceilings())

    def ceilings(self) -> Ceilings:
        """Of this machine, now: whatever took memory should have given it back."""
        return measure_ceilings(self.device, self.dtype)

    def figures(self) -> dict[str, Any]:
        """What every file begins with."""
        return {
            "command": command_line(),
            "workload": described(self.asked),
            "model": self.name,
            "device": self.device,
            "dtype": str(self.dtype).removeprefix("torch."),
            "backend": self.backend,
            "settings": self.config.non_default() | {"model": self.name},
            "seeds": list(self.asked.seeds),
        }


def our_name(config: EngineConfig) -> str:
    """Of our engine in a table: how it batches decides what it is compared for."""
    return f"YAIE, {config.batching} batching, up to {config.max_num_seqs} at once"
