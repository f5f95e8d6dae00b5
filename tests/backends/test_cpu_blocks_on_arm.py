"""Products with blocks by the instructions of ARM, under an emulator: right, whatever the time."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from tests.models.gguf.random_blocks import random_bytes
from yaie.backends.cpu.blocks import VALUES
from yaie.backends.cpu.build import FLAGS, SOURCE

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
DRIVER = Path(__file__).with_name("run_blocks.cpp")
OUTPUTS, COUNT = 37, 2

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None,
        reason="needs the packages g++-aarch64-linux-gnu and qemu-user-static",
    ),
]


@pytest.mark.parametrize(("level", "dots"), [("armv8.2-a+dotprod", 1), ("armv8-a", 0)])
def test_products_are_those_of_the_numbers(tmp_path: Path, level: str, dots: int) -> None:
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    sources = [str(SOURCE / name) for name in ("blocks.cpp", "attention.cpp")]
    program = str(tmp_path / "run")
    subprocess.run(
        [COMPILER, *flags, f"-march={level}", "-static", str(DRIVER), *sources, "-o", program],
        check=True,
    )
    generator = np.random.default_rng(0)
    cases = []
    with (tmp_path / "in").open("wb") as file:
        for number in sorted(VALUES):
            kind = GGMLQuantizationType(number)
            for rows in (1, 3, 20):
                inputs = COUNT * VALUES[number]
                stored = random_bytes(generator, kind, OUTPUTS * COUNT, 0.01)
                stored = stored.reshape(OUTPUTS, COUNT * GGML_QUANT_SIZES[kind][1])
                x = generator.standard_normal((rows, inputs)).astype(np.float32)
                head = np.array([number, rows, inputs, OUTPUTS, stored.size, COUNT], np.int64)
                for part in (head, stored, x):
                    file.write(part.tobytes())
                cases.append((x, quants.dequantize(stored.copy(), kind)))
    ran = subprocess.run(
        [EMULATOR, program, str(tmp_path / "in"), str(tmp_path / "out")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stdout == f"4 lanes, dots {dots}\n"
    found = np.fromfile(tmp_path / "out", np.float32)
    for x, weight in cases:
        out, numbers, found = np.split(found, [len(x) * OUTPUTS, len(x) * OUTPUTS + weight.size])
        assert np.allclose(numbers.reshape(weight.T.shape), weight.T, rtol=1e-6)
        wanted = x.astype(np.float64) @ weight.T.astype(np.float64)
        bound = 5e-7 * (np.abs(x) @ np.abs(weight.T))
        assert (np.abs(out.reshape(wanted.shape) - wanted) <= bound).all()
    assert not found.size
