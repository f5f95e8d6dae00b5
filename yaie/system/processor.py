"""What a CPU offers this process: cores it may use, and instructions for bfloat16."""

import os
import platform
import subprocess
import sys
from pathlib import Path

BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The instruction sets that Linux lists for the first processor; empty elsewhere."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    listed = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(listed.partition(":")[2].split())


def multiplies_bfloat16() -> bool:
    """Whether matrix products in bfloat16 have instructions of their own here."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return _sysctl("hw.optional.arm.FEAT_BF16") == "1"
    return bool(BFLOAT16_FLAGS & flags())


def usable_cores(root: Path = Path("/")) -> int | None:
    """Physical cores that this process may use, by its affinity and its control groups' quota, and at
    least 1; None where the system does not tell. root: of the file system, for tests."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    topology = root / "sys/devices/system/cpu"
    # Two hardware threads of a core list the same siblings.
    cores = {
        _read(topology / f"cpu{cpu}/topology/thread_siblings_list") or f"cpu{cpu}"
        for cpu in os.sched_getaffinity(0)
    }
    return max(1, int(min([len(cores), *_quotas(root)])))


def _quotas(root: Path) -> list[float]:
    """Of each control group that this process is in, the cores whose time it may take."""
    folders: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        group = mount / path.lstrip("/")
        # A container may see its own group as the root, under a path that is not there.
        folders += [mount, *(one for one in (group, *group.parents) if mount in one.parents)]
    return [quota for folder in folders if (quota := _quota(folder))]


def _quota(group: Path) -> float:
    """In cores; 0 for none. `cpu.max` is version 2's file, the others are version 1's."""
    words = _read(group / "cpu.max").split() or [
        _read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")
    ]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max", or no such file
        return 0
    return quota / period if quota > 0 else 0


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    try:
        ran = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()
