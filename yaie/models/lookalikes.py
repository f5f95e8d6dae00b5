"""What people give in the place of a model: known by its files, and told by name with the way out."""

from pathlib import Path

from yaie.core.errors import ModelError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
POINTER = b"version https://git-lfs.github.com/spec/"
MAX_POINTER = 1024
"""Bytes, by Git LFS's specification."""
GGUF_LIST = "gguf_tensors.json"
"""In the folder that YAIE makes of a GGUF: where in the file each tensor lies."""
LISTED = 1000
"""Entries of a folder that are looked at for a hint."""


def refuse_pointer(path: Path) -> None:
    """Raise ModelError if this file is what Git LFS leaves in the place of one that it did not fetch."""
    if is_pointer(path):
        raise ModelError(
            f"{path} is a Git LFS pointer, not the file itself: the repository was cloned without its "
            f"large files. Fetch them with: cd {path.parent} && git lfs install && git lfs pull"
        )


def is_pointer(path: Path) -> bool:
    """Whether a file holds a few lines of Git LFS instead of what its name says."""
    try:
        if path.stat().st_size >= MAX_POINTER:
            return False
        return path.read_bytes().startswith(POINTER)
    except OSError:
        return False


def is_gguf(path: Path) -> bool:
    """Whether a file is one, by its first bytes or its name."""
    return path.suffix.lower() == ".gguf" or _starts_with(path, b"GGUF")


def not_a_folder(path: Path) -> ModelError:
    """The error for a file that was given where a folder is wanted."""
    refuse_pointer(path)
    if path.name in ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"):
        return _adapter(f"{path} is of")
    if any(path.match(pattern) for pattern in PICKLES):
        return _pickles(f"{path} is a pickle")
    return ModelError(
        f"{path} is a file. Give the folder that holds config.json and the weights"
        + (f": {path.parent}" if (path.parent / "config.json").is_file() else ".")
    )


def no_config(folder: Path) -> ModelError:
    """The error for a folder without config.json."""
    names = listed(folder)
    known = known_kind(str(folder), names)
    if known is not None:
        return known
    if "model_index.json" in names:
        return ModelError(
            f"{folder} is a pipeline of diffusers, which makes images: give a language model."
        )
    inner = [name for name in names if (folder / name / "config.json").is_file()]
    hint = f" Its folder {inner[0]} has one: is that the model?" if inner else ""
    return ModelError(
        f"{folder} has no config.json, so it is not a model in Hugging Face layout.{hint} Give the "
        "folder that save_pretrained wrote, or the id of a model on the hub."
    )


def known_kind(place: str, names: list[str]) -> ModelError | None:
    """The error for a folder or repository with these file names, if they say what it is instead of a
    model that can be read."""
    if any(name == "adapter_config.json" or name.startswith("adapter_model") for name in names):
        return _adapter(f"{place} is")
    pickles = [name for name in names if any(Path(name).match(pattern) for pattern in PICKLES)]
    if pickles:
        return _pickles(f"{place} has its weights only as pickle ({pickles[0]})")
    if any(name.lower().endswith(".gguf") for name in names):
        return ModelError(
            f"{place} has its weights only as GGUF. Give one of its files instead: FILE.gguf of a "
            "folder, or ORG/REPO:Q4_K_M of a repository on the hub, with the type that you want."
        )
    if any(name.lower().endswith(".onnx") for name in names):
        return ModelError(
            f"{place} has its weights only as ONNX, which is not read here. Serve the original model "
            "with safetensors, which the model card usually links to."
        )
    return None


def listed(folder: Path) -> list[str]:
    """Names of what a folder holds, sorted; of a huge one, some."""
    names = []
    for path in folder.iterdir():
        names.append(path.name)
        if len(names) == LISTED:
            break
    return sorted(names)


def _adapter(beginning: str) -> ModelError:
    return ModelError(
        f"{beginning} a LoRA adapter, not a model. Merge it into its base model (peft's "
        "merge_and_unload, then save_pretrained) and serve the result."
    )


def _pickles(beginning: str) -> ModelError:
    return ModelError(
        f"{beginning}, and loading a pickle runs whatever code it contains. Look for a version with "
        "safetensors (often a pull request on the hub, use --revision), or convert it where you trust "
        "it: AutoModelForCausalLM.from_pretrained(...).save_pretrained(FOLDER) writes safetensors, then "
        "serve FOLDER."
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False
