"""A decode step on ranks that need not exist, from a device's rates, its links and a model's numbers."""

from dataclasses import dataclass

from yaie.bench.scale.links import Links
from yaie.bench.scale.machines import Known
from yaie.bench.scale.sizes import Dims, Draws, calls
from yaie.models.shard_shapes import check_shapes


@dataclass(frozen=True, slots=True)
class Predicted:
    """A decode step of a batch. Seconds, and bytes that a rank sends.

    compute: on the slowest rank of each stage, all stages after each other. collectives: within the
    stages. sends: from stage to stage. step: all three, what a token waits for. sent: bytes of a rank.
    tokens_per_second: when each stage has another batch in flight.
    """

    tensor_parallel: int
    pipeline_parallel: int
    compute: float
    collectives: float
    sends: float
    sent: float
    tokens_per_second: float

    @property
    def step(self) -> float:
        return self.compute + self.collectives + self.sends


def stage_seconds(
    dims: Dims, known: Known, ranks: int, rows: int, context: int, layers: int, *, head: bool
) -> float:
    """What `layers` layers, and perhaps the output head, take on one of `ranks` ranks.

    The larger of two, times what the machine was seen to need of it: reading weights, keys and values,
    or multiplying. Then each layer's fixed time.
    """
    weights = layers * dims.layer_weights(ranks) + (dims.head_weights(ranks) if head else 0)
    keys = layers * rows * context
    read = (weights * dims.width + keys * dims.kv_bytes(ranks)) / known.bytes_per_second
    operations = 2 * weights * rows + 4 * keys * dims.query_width(ranks)
    least = max(read, operations / known.operations_per_second)
    return known.factor(rows) * least + layers * known.fixed_seconds


def predict(
    dims: Dims,
    known: Known,
    links: Links,
    tensor_parallel: int,
    pipeline_parallel: int,
    rows: int,
    context: int,
    draws: Draws,
) -> Predicted:
    """A decode step of `rows` requests with `context` tokens each.

    Raises ConfigError if the model cannot be split so.
    """
    ranks, stages = tensor_parallel, pipeline_parallel
    check_shapes(
        "this shape",
        ranks,
        stages,
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        inner=dims.inner,
        layers=dims.layers,
    )
    shares = [len(range(stage, dims.layers, stages)) for stage in range(stages)]
    times = [
        stage_seconds(dims, known, ranks, rows, context, layers, head=stage == stages - 1)
        for stage, layers in enumerate(shares)
    ]
    made = calls(dims, ranks, rows, draws)
    collectives = links.collectives(made, ranks)
    states = rows * dims.hidden * dims.width
    sends = (stages - 1) * links.send(states)
    sent = sum(call.sent(links.algorithm, ranks) for call in made) / stages
    sent += states * (stages - 1) / stages
    whole = sum(times) + collectives + sends
    # With a batch for each stage, none is done before the slowest stage has computed all of them.
    slowest = max(
        time + collectives * share / dims.layers for time, share in zip(times, shares, strict=True)
    )
    return Predicted(
        tensor_parallel=ranks,
        pipeline_parallel=stages,
        compute=sum(times),
        collectives=collectives,
        sends=sends,
        sent=sent,
        tokens_per_second=stages * rows / max(whole, stages * slowest),
    )
