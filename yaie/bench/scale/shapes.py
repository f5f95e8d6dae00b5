"""`yaie bench scale --shape`: decode steps of a large model on known machines, predicted."""

from collections.abc import Iterator
from dataclasses import asdict
from types import SimpleNamespace

from yaie.bench.collectives import Algorithm
from yaie.bench.known_shapes import HYBRIDS, SHAPES
from yaie.bench.report import save, show
from yaie.bench.scale.machines import MACHINES, Known
from yaie.bench.scale.predict import Predicted, predict
from yaie.bench.scale.sizes import Dims, Draws
from yaie.core.errors import ConfigError

LAYOUTS = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (2, 2), (1, 4), (4, 4))
"""(tensor_parallel, pipeline_parallel)."""
COLUMNS = (
    "ranks: tensor by pipeline parallel; times in ms; speed-up: of a token, against one rank",
    "tokens/s: with as many batches in flight as there are stages",
)
WIDTH = 2
"""Bytes of a number of bfloat16."""


def dims(shape: str) -> Dims:
    """The numbers of a shape, in bfloat16, of a model whose layers all attend. Raises ConfigError if
    there is none of this name."""
    known = {name: values for name, (kind, values) in SHAPES.items() if kind not in HYBRIDS}
    if shape not in known:
        raise ConfigError(
            f"--shape is one of {', '.join(known)}; there is no {shape!r}", param="shape"
        )
    return Dims.of(SimpleNamespace(**known[shape]), WIDTH)


def machine(name: str) -> Known:
    """A known machine. Raises ConfigError if there is none of this name."""
    if name not in MACHINES:
        raise ConfigError(
            f"--machine is one of {', '.join(MACHINES)}; there is no {name!r}", param="machine"
        )
    return MACHINES[name]


def run(
    shape: str,
    machine_name: str,
    algorithm: Algorithm,
    batches: list[int],
    context: int,
    draws: Draws,
    json: str | None,
) -> None:
    """Predict steps on 1 to 16 ranks. Raises ConfigError for what is not known."""
    model, known = dims(shape), machine(machine_name)
    if algorithm not in known.all_reduce:
        raise ConfigError(
            f"--all-reduce on {machine_name} is one of {', '.join(known.all_reduce)}: {algorithm} was "
            "not measured there",
            param="all_reduce",
        )
    links = known.links(algorithm)
    found: dict[int, list[Predicted]] = {}
    notes: list[str] = []
    for rows in batches:
        found[rows] = []
        for ranks, stages in LAYOUTS:
            try:
                one = predict(model, known, links, ranks, stages, rows, context, draws)
            except ConfigError as error:
                notes.append(f"{ranks} x {stages}: {error}")
                continue
            found[rows].append(one)
    columns = ["batch", "ranks", "compute", "between", "step", "MB sent", "speed-up", "tokens/s"]
    table = [row for rows, own in found.items() for row in _rows(rows, own)]
    points = known.all_reduce[algorithm]
    ratios = [links.all_reduce(size, 2) / seconds for size, seconds in points.items()]
    workload = f"predicted, not measured: {known.label}, decode steps at {context} tokens, {draws}"
    fitted = (
        f"links: {1e6 * links.latency:.1f} us and {links.bandwidth / 1e9:,.0f} GB/s, summing by "
        f"{algorithm}; on two devices that gives {min(ratios):.2f} to {max(ratios):.2f} times what was "
        "measured"
    )
    computed = (
        "compute: the larger of reading and multiplying, times what one device was seen to need of it, "
        f"and {1e6 * known.fixed_seconds:.0f} us a layer that more ranks do not shorten"
    )
    notes = [workload, fitted, *COLUMNS, computed, *dict.fromkeys(notes)]
    show(f"{shape} on more ranks", columns, table, notes)
    data = {
        "workload": workload,
        "shape": shape,
        "predicted_for": machine_name,
        "links": {"algorithm": algorithm, "latency_us": 1e6 * links.latency,
                  "bytes_per_second": links.bandwidth,
                  "fitted_to_measured": dict(zip(points, ratios, strict=True))},
        "batches": {rows: [asdict(one) | {"step": one.step, "speed_up": own[0].step / one.step}
                           for one in own] for rows, own in found.items()},
    }  # fmt: skip
    save(json, data)


def _rows(rows: int, found: list[Predicted]) -> Iterator[tuple[str, ...]]:
    for index, one in enumerate(found):
        yield (
            "" if index else str(rows),
            f"{one.tensor_parallel} x {one.pipeline_parallel}",
            f"{1e3 * one.compute:.2f}",
            f"{1e3 * (one.collectives + one.sends):.2f}",
            f"{1e3 * one.step:.2f}",
            f"{one.sent / 1e6:,.2f}",
            f"{found[0].step / one.step:.2f}",
            f"{one.tokens_per_second:,.0f}",
        )
