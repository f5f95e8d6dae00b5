"""What `yaie bench throughput` was asked for, checked before anything is loaded."""

from dataclasses import dataclass
from typing import Literal

from yaie.bench.workload import Lengths
from yaie.core.errors import ConfigError

Workload = Literal["random", "nano", "fixed", "prefix", "serve"]
PEERS = ("transformers", "static", "vllm", "sglang", "none")
DEFAULTS: dict[Workload, tuple[int, str, str]] = {
    "random": (64, "16-256", "16-256"),
    "nano": (256, "100-1024", "100-1024"),
    "fixed": (1, "1024", "128"),
    "prefix": (1, "1", "64"),
    "serve": (256, "100-1024", "100-1024"),
}
"""Requests, prompt tokens and output tokens of each workload where the command line says nothing."""
TAKES: dict[Workload, frozenset[str]] = {
    "random": frozenset({"requests", "prompt-tokens", "output-tokens", "geometric", "peer", "ablation"}),
    "nano": frozenset({"requests", "prompt-tokens", "output-tokens", "peer", "ablation"}),
    "fixed": frozenset({"prompt-tokens", "output-tokens", "peer", "ablation"}),
    "prefix": frozenset({"groups", "group-size", "shared-tokens", "own-tokens", "output-tokens"}),
    "serve": frozenset({"requests", "prompt-tokens", "output-tokens", "rate"}),
}  # fmt: skip
BATCHES = (1, 8, 32, 128, 256)
STATIC_BATCHES = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options. batches: of workload fixed, and of transformers as a peer; None for each
    one's own. seeds: one run for each, after a first run with the first of them. rate: requests that
    arrive in a second in workload serve; None for all at once."""

    workload: Workload
    requests: int
    lengths: Lengths
    seeds: tuple[int, ...]
    peers: tuple[str, ...] = ()
    peer_python: str | None = None
    ablation: bool = False
    batches: tuple[int, ...] | None = None
    groups: int = 64
    group_size: int = 16
    shared_tokens: int = 2048
    own_tokens: int = 128
    rate: float | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """The seeds in the order in which they run: the first of them twice."""
        return (self.seeds[0], *self.seeds)


def asked(
    workload: Workload,
    requests: int | None,
    prompt_tokens: str | None,
    output_tokens: str | None,
    geometric: float | None,
    batch: list[int] | None,
    prefix: dict[str, int | None],
    seeds: str,
    peers: list[str] | None,
    peer_python: str | None,
    ablation: bool,
    rate: float | None = None,
) -> Asked:
    """From the command's options, None where they were not given. prefix: those of workload prefix, by
    the names of the fields above.

    Raises ConfigError for one that the workload does not take, or that says nothing sensible.
    """
    given: dict[str, object] = {
        "requests": requests, "prompt-tokens": prompt_tokens, "output-tokens": output_tokens,
        "geometric": geometric, "peer": peers, "ablation": ablation or None, "rate": rate,
        **{name.replace("_", "-"): value for name, value in prefix.items()},
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and name not in TAKES[workload]:
            raise ConfigError(f"--{name} does not go with --workload {workload}", param=name)
    default = DEFAULTS[workload]
    lengths = Lengths.parse(prompt_tokens or default[1], output_tokens or default[2], geometric)
    if workload in ("fixed", "prefix"):
        for name, (low, high) in (("prompt", lengths.prompt), ("output", lengths.output)):
            if low != high:
                raise ConfigError(
                    f"--{name}-tokens is one number in --workload {workload}",
                    param=f"{name}-tokens",
                )
    for name in peers or []:
        if name not in PEERS:
            raise ConfigError(
                f"--peer is one of {', '.join(PEERS)}; there is no {name!r}", param="peer"
            )
    if rate is not None and rate <= 0:
        raise ConfigError(f"--rate must be more than 0 a second; got {rate:g}", param="rate")
    if peers is None:
        peers = ["transformers"] if workload == "random" and not ablation else []
    if batch and workload != "fixed" and "transformers" not in peers:
        raise ConfigError(
            "--batch is for --workload fixed and for --peer transformers: add one of them",
            param="batch",
        )
    if peer_python is not None and not {"vllm", "sglang"}.intersection(peers):
        raise ConfigError("--peer-python goes with --peer vllm or sglang", param="peer-python")
    return Asked(
        workload,
        default[0] if requests is None else requests,
        lengths,
        _seeds(seeds),
        tuple(dict.fromkeys(name for name in peers if name != "none")),
        peer_python,
        ablation,
        tuple(batch) if batch else None,
        **{name: value for name, value in prefix.items() if value is not None},
        rate=rate,
    )


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--seeds must be whole numbers joined by commas, such as 0,1,2; got {text!r}",
            param="seeds",
        ) from None
