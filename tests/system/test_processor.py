"""What a CPU offers: instructions by its flags, cores by affinity and quota."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.system import processor

CPUINFO = "processor\t: 0\nflags\t\t: fpu sse2 {}\n\nprocessor\t: 1\nflags\t\t: fpu\n"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_the_flags_of_the_first_processor_count(tmp_path: Path) -> None:
    write(tmp_path / "cpuinfo", CPUINFO.format("avx2 avx512_bf16"))
    assert processor.flags(tmp_path / "cpuinfo") == {"fpu", "sse2", "avx2", "avx512_bf16"}
    assert processor.flags(tmp_path / "nothing") == frozenset()


@pytest.mark.parametrize(
    ("listed", "multiplies"),
    [({"avx512_bf16"}, True), ({"amx_bf16", "avx2"}, True), ({"avx512f", "amx_int8"}, False)],
)
def test_bfloat16_has_instructions_where_a_flag_says_so(
    listed: set[str], multiplies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(processor, "flags", lambda: frozenset(listed))
    assert processor.multiplies_bfloat16() is multiplies


@pytest.mark.parametrize(("said", "multiplies"), [("1\n", True), ("0\n", False), ("", False)])
def test_apple_silicon_is_asked_for_it(
    said: str, multiplies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command == ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        return subprocess.CompletedProcess(command, 0, stdout=said)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(processor.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(subprocess, "run", run)
    assert processor.multiplies_bfloat16() is multiplies


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four cores of two hardware threads each, of which the process may use three cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 5}, raising=False)
    for cpu in range(8):
        siblings = f"{cpu % 4},{cpu % 4 + 4}"
        write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
    return tmp_path


def test_hardware_threads_of_a_core_count_once_and_those_of_others_do_not(machine: Path) -> None:
    assert processor.usable_cores(machine) == 3


def test_processors_of_unknown_topology_count_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3}, raising=False)
    assert processor.usable_cores(tmp_path) == 2


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "200000 100000"}, 2),  # a container sees its own group as the root
        ({"cpu.max": "max 100000"}, 3),
        ({"pod/app/cpu.max": "max 100000", "pod/cpu.max": "150000 100000"}, 1),
        ({"pod/app/cpu.max": "20000 100000"}, 1),
        ({"pod/app/cpu.max": "800000 100000"}, 3),
    ],
)
def test_a_quota_of_any_group_around_the_process_counts(
    files: dict[str, str], cores: int, machine: Path
) -> None:
    write(machine / "proc/self/cgroup", "0::/pod/app")
    for name, text in files.items():
        write(machine / "sys/fs/cgroup" / name, text)
    assert processor.usable_cores(machine) == cores


def test_a_quota_of_version_1_counts_as_well(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "4:memory:/app\n2:cpu,cpuacct:/app\n1:cpuset:/")
    group = machine / "sys/fs/cgroup/cpu,cpuacct/app"
    write(group / "cpu.cfs_quota_us", "-1")
    write(group / "cpu.cfs_period_us", "100000")
    assert processor.usable_cores(machine) == 3
    write(group / "cpu.cfs_quota_us", "250000")
    assert processor.usable_cores(machine) == 2


def test_a_system_without_affinity_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processor.usable_cores() is None
