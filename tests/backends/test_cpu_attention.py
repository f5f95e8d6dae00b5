"""The C++ library attends as float64 does, whatever the shapes, and reads nothing else."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.backends.paged_cases import Case, any_case, attend, error, wide
from yaie.backends.cpu import build
from yaie.backends.cpu.library import Library, library

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())

SANITIZED = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.fixture(scope="module")
def lib() -> Library:
    return library()


def alike(n: int, common: int, own: int, numbers: int = 0) -> Case:
    """n sequences of one query each: `common` keys that all begin with, and `own` of their own."""
    size, kv_heads, d = 16, 2, 64
    shared, rest = common // size, -(-own // size)
    blocks = shared + n * rest
    made = np.random.default_rng(numbers)
    tables = np.arange(blocks, dtype=np.int32)
    rows = [[*tables[:shared], *tables[shared + i * rest :][:rest]] for i in range(n)]
    pool = [made.standard_normal((blocks, size, kv_heads, d)).astype(np.float32) for _ in range(2)]
    q = made.standard_normal((n, 2 * kv_heads, d)).astype(np.float32)
    return Case(
        q, *pool, np.arange(n + 1, dtype=np.int32), np.full(n, common + own, np.int32),
        np.array(rows, np.int32), None, 0.0, None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_any_batch_is_attended_as_in_float64(seed: int, lib: Library) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        case = any_case(rng)
        assert error(case, attend(case, lib)) < 4


def test_a_common_beginning_is_read_in_a_pass_of_its_own(lib: Library) -> None:
    case = alike(4, common=256, own=40)
    plans = [
        lib.make_plan(
            case.starts.ctypes.data, case.lens.ctypes.data, case.tables.ctypes.data,
            case.tables.shape[1], 4, 16, 2, shares,
        )
        for shares in (True, False)
    ]  # fmt: skip
    assert [lib.plan_levels(plan) for plan in plans] == [2, 1]
    for plan in plans:
        lib.free_plan(plan)
    assert error(case, attend(case, lib)) < 4
    assert error(case, attend(case, lib, shares=False)) < 4


def test_branches_of_a_common_beginning_share_again(lib: Library) -> None:
    case = alike(4, common=256, own=400)
    case.tables[1, :30] = case.tables[0, :30]  # two of the four go on together
    plan = lib.make_plan(
        case.starts.ctypes.data, case.lens.ctypes.data, case.tables.ctypes.data,
        case.tables.shape[1], 4, 16, 2, True,
    )  # fmt: skip
    assert lib.plan_levels(plan) == 3
    lib.free_plan(plan)
    assert error(case, attend(case, lib)) < 4


def test_a_short_common_beginning_is_not_worth_a_pass(lib: Library) -> None:
    case = alike(2, common=64, own=40)
    plan = lib.make_plan(
        case.starts.ctypes.data, case.lens.ctypes.data, case.tables.ctypes.data,
        case.tables.shape[1], 2, 16, 2, True,
    )  # fmt: skip
    assert lib.plan_levels(plan) == 1
    lib.free_plan(plan)


def test_threads_do_not_change_a_bit(lib: Library) -> None:
    rng = random.Random(7)
    for _ in range(6):
        case = any_case(rng)
        alone = attend(case, lib, threads=1)
        assert all(np.array_equal(attend(case, lib, threads=n), alone) for n in (2, 3))


@pytest.mark.parametrize("length", [255, 256, 257, 1024, 1500])
@pytest.mark.parametrize("window", [None, 300])
def test_pieces_of_a_long_sequence_are_joined(
    length: int, window: int | None, lib: Library
) -> None:
    case = alike(2, common=0, own=length)
    case.window = window
    assert error(case, attend(case, lib)) < 4


def test_who_runs_beside_a_sequence_does_not_change_a_bit_of_it(lib: Library) -> None:
    case = alike(5, common=0, own=900)
    case.lens[:] = [900, 3, 257, 600, 256]
    together = attend(case, lib, shares=False, threads=3)
    for i in range(5):
        alone = replace(
            case, q=case.q[i : i + 1], starts=case.starts[:2], lens=case.lens[i : i + 1],
            tables=case.tables[i : i + 1],
        )  # fmt: skip
        assert np.array_equal(attend(alone, lib, threads=1), together[i : i + 1])


def test_threads_of_its_own_where_openmp_cannot_be_called(lib: Library) -> None:
    case = alike(16, common=64, own=100)
    before = attend(case, lib)
    lib.use_own_threads()
    try:
        assert all(np.array_equal(attend(case, lib, threads=n), before) for n in (4, 2, 3, 4))
    finally:
        lib.use_openmp()


def test_what_a_block_held_before_is_not_read(lib: Library) -> None:
    case = alike(2, common=0, own=17)
    clean = attend(case, lib)
    for pool in (case.keys, case.values):
        pool[case.tables[:, 1], 1:] = np.nan  # slot 0 of the second block is the seventeenth token
    assert np.array_equal(attend(case, lib), clean)


def test_nan_stays_in_its_own_sequence(lib: Library) -> None:
    case = alike(3, common=0, own=40)
    case.keys[case.tables[1, 0], 3] = np.nan
    got = wide(attend(case, lib))
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()


def sanitized(*arguments: str) -> "subprocess.CompletedProcess[str]":
    compiler = build.find_host_compiler()
    assert compiler is not None
    build.build(SANITIZED.split())  # here, where no sanitizer slows the compiler down
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return subprocess.run(
        [sys.executable, "-m", "tests.backends.paged_cases", SANITIZED, *arguments],
        env={**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.skipif(
    sys.platform != "linux" or "g++" not in str(shutil.which("g++")),
    reason="the sanitizers are loaded as g++ on Linux has them",
)
class TestUnderTheSanitizers:
    """Address and undefined behaviour, in a process without PyTorch."""

    @pytest.mark.nightly
    def test_nothing_is_read_beyond_an_array(self) -> None:
        ran = sanitized("20")
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert "20 cases" in ran.stdout

    @pytest.mark.nightly
    def test_a_table_that_is_too_short_is_seen(self) -> None:
        ran = sanitized("1", "short")
        assert ran.returncode != 0
        assert "heap-buffer-overflow" in ran.stderr
