# %% [markdown]
# # Your kernels on a hosted GPU
#
# A laptop grades the kernel labs (9 to 16) without a GPU: Triton's in its interpreter, CUDA C++
# on the CPU. Whether a kernel compiles for a GPU, and how fast it is there, only a GPU can tell.
# This notebook clones your copy of the repository on a machine that has one, grades the labs
# again and measures what has passed.
#
# **Not run by its authors.** They had no account with a hosting service. Its cells were checked
# for syntax, and its commands are those of the chapters.
#
# Choose a runtime with a GPU first. In Colab: *Runtime*, *Change runtime type*. The free GPU is
# usually a T4 of compute capability 7.5, which has no arithmetic in bfloat16. Kernels are
# measured in bfloat16, so expect errors of Triton's compiler there; GPUs of 8.0 and later, such
# as the L4 and the A100, have it.

# %% [markdown]
# ## Which copy
#
# Push your work to a repository of your own, and write its address here. A private one needs a
# token in the address.

# %%
import subprocess
import sys
from pathlib import Path

REPOSITORY = ""  # such as https://github.com/you/yaie
FOLDER = Path.home() / "yaie"


def run(command: str, folder: Path = FOLDER) -> int:
    """Run a command and show what it prints as it comes. Returns its exit status."""
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout:
            print(line, end="")
    return process.returncode


if not REPOSITORY and not FOLDER.is_dir():
    raise SystemExit(
        "Write the address of your repository above, as REPOSITORY, and run this cell again."
    )
if not FOLDER.is_dir():
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(FOLDER)], check=True)
run("git log -1 --oneline && nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv")

# %% [markdown]
# ## Set up
#
# This downloads PyTorch with its CUDA libraries, some gigabytes. Some hosted machines have a
# Python without the module `venv`; the first line installs it.

# %%
if run(f"{sys.executable} -c 'import venv, ensurepip'"):
    run("apt-get -qq update && apt-get -qq install -y python3-venv python3-pip")
if run(f"make setup PYTHON={sys.executable}"):
    raise SystemExit("The set-up failed; its last lines say why.")
run(".venv/bin/yaie doctor")

# %% [markdown]
# ## Grade
#
# The same graders as on your laptop. Tasks that were *not verified here* without a GPU are
# verified now. A lab that you have not begun earns nothing, and nothing else depends on it.

# %%
LABS = [
    "triton_ops",
    "triton_flash_attention",
    "triton_paged_attention",
    "triton_sampling",
    "cuda_memory_ops",
    "cuda_ops",
    "cuda_flash_attention",
    "cuda_paged_attention",
]
for lab in LABS:
    run(f"make --no-print-directory grade LAB={lab}")

# %% [markdown]
# ## Measure
#
# Each kernel of yours that has passed, beside PyTorch, `torch.compile`, the libraries' own
# kernels and the speed of a plain copy, all in one run. The reference stands in for what you have
# not written. Compare within this run: another machine, or another day on this one, is another
# measurement.

# %%
run(".venv/bin/yaie bench kernels --json kernels.json")

# %% [markdown]
# ## Talk to a model that runs on your kernels
#
# What has passed is what the engine runs.

# %%
run("printf 'What is a warp?\\n/stats\\n' | .venv/bin/yaie chat --backend triton")
run("printf 'What is a warp?\\n/stats\\n' | .venv/bin/yaie chat --backend cuda")

# %% [markdown]
# ## Keep it
#
# The machine forgets everything when it is released. Download `kernels.json` and
# `.yaie/progress.json` from the folder that the next cell prints, or commit them.

# %%
print(FOLDER / "kernels.json", FOLDER / ".yaie/progress.json", sep="\n")
