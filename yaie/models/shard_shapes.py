"""Over how many ranks a model of given numbers can be split."""

from collections.abc import Mapping

from yaie.core.errors import ConfigError


def check_shapes(
    name: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    *,
    heads: int,
    kv_heads: int,
    inner: int,
    layers: int,
    even: Mapping[str, int] | None = None,
) -> None:
    """Raise ConfigError unless a model of these numbers can be split so.

    inner: width of its feed-forward layers. even: what else must be divided, in words.
    """
    size = tensor_parallel
    for count, what in ((heads, "attention heads"), (inner, "feed-forward features")):
        if count % size:
            raise ConfigError(
                f"tensor_parallel {size} does not divide the {count:,} {what} of {name}: choose one of "
                f"{_told(fitting_sizes(heads, kv_heads, inner))}",
                param="tensor_parallel",
            )
    if kv_heads % size and size % kv_heads:
        raise ConfigError(
            f"tensor_parallel {size} neither divides the {kv_heads} KV heads of {name} nor is a "
            f"multiple of them: choose one of {_told(fitting_sizes(heads, kv_heads, inner))}",
            param="tensor_parallel",
        )
    for what, count in (even or {}).items():
        if count % size:
            raise ConfigError(
                f"tensor_parallel {size} does not divide the {count:,} {what} of {name}: choose a "
                "number that does",
                param="tensor_parallel",
            )
    if pipeline_parallel > layers:
        raise ConfigError(
            f"pipeline_parallel {pipeline_parallel} is more than the {layers} layers of {name}: a stage "
            f"holds at least one, so choose at most {layers}",
            param="pipeline_parallel",
        )


def fitting_sizes(heads: int, kv_heads: int, inner: int) -> list[int]:
    """The values of tensor_parallel that a model of these numbers allows; see `check_shapes`."""
    return [
        size
        for size in range(1, heads + 1)
        if heads % size == inner % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    ]


def _told(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
