"""Reading a checkpoint's tensors from a folder: safetensors, in one file or in shards, never pickle.

The folder that describes a GGUF (`yaie.models.gguf`) has a list of the tensors in it instead.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie.core.errors import ModelError
from yaie.models.json_files import bad_field, read_json
from yaie.models.lookalikes import GGUF_LIST, known_kind, listed, refuse_pointer

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.models.layout import Stored

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the model's weights: the whole file where there is one, whatever
    index lies beside it, as transformers does. Of a GGUF, the list of its tensors.

    Raises ModelError if there are none (and says what there is instead), or if a shard is missing.
    """
    if (folder / SINGLE_FILE).is_file():
        files = [folder / SINGLE_FILE]
    elif (folder / INDEX_FILE).is_file():
        files = _shards(folder / INDEX_FILE)
    elif (folder / GGUF_LIST).is_file():
        files = [folder / GGUF_LIST]
    else:
        raise no_weights(str(folder), listed(folder))
    for path in files:
        refuse_pointer(path)
    return files


def _shards(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise bad_field(index, "weight_map", weight_map, "an object: from each tensor to its file")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not Path(name).name or "\0" in name:
            raise bad_field(index, f"weight_map.{tensor}", name, "the name of a safetensors file")
    # A name is a file beside the index; anything else would reach outside the folder.
    shards = [index.parent / name for name in sorted({Path(n).name for n in weight_map.values()})]
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ModelError(
            f"{index.parent} lacks {len(missing)} of the {len(shards)} shards that {index.name} lists: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}. The download or copy was "
            "cut short; fetch the model again."
        )
    return shards


def has_safetensors(folder: Path) -> bool:
    """Whether a folder has the weights of a model in it."""
    return (folder / SINGLE_FILE).is_file() or (folder / INDEX_FILE).is_file()


def lists_safetensors(names: list[str]) -> bool:
    """Whether these are the files of a model that can be loaded."""
    return SINGLE_FILE in names or INDEX_FILE in names


def no_weights(place: str, names: list[str]) -> ModelError:
    """The error for a folder or repository, with these file names, that has no usable weights."""
    known = known_kind(place, names)
    if known is not None:
        return known
    return ModelError(
        f"{place} has no weights: neither {SINGLE_FILE} nor {INDEX_FILE}. Give the folder that "
        "save_pretrained wrote, or the id of a model on the hub."
    )


def read_tensors(
    files: list[Path], advance: Callable[[int], None]
) -> "Iterator[tuple[str, Tensor]]":
    """(name, tensor on the CPU) of every tensor, file by file; the memory is mapped, not read.

    advance: called with the bytes of each tensor once it has been consumed.
    Raises ModelError naming a file that is corrupt.
    """
    for name, tensor in read_stored(files, lambda _: None):
        whole = tensor[(slice(None),) * len(tensor.shape)]
        yield name, whole
        advance(whole.nbytes)


class StoredTensor:
    """A tensor in a safetensors file, read as far as it is asked for. See `layout.Stored`.

    shape: of the whole.
    """

    def __init__(self, path: Path, file: Any, name: str, read: Callable[[int], None]) -> None:
        """file: an open `safe_open` of `path`. read: called with the bytes of each part that is read."""
        self._path = path
        self._part = file.get_slice(name)
        self._whole = partial(file.get_tensor, name)
        self._read = read
        self.shape: tuple[int, ...] = tuple(self._part.get_shape())

    def numel(self) -> int:
        return prod(self.shape)

    def __getitem__(self, index: tuple[slice, ...]) -> "Tensor":
        """Raises ModelError if the file is damaged there."""
        from safetensors import SafetensorError

        is_whole = all(one == slice(None) for one in index)
        try:
            tensor: Tensor = self._whole() if is_whole else self._part[index]
        except (SafetensorError, OSError) as error:
            raise _damaged(self._path, error) from None
        self._read(tensor.nbytes)
        return tensor


def read_stored(
    files: list[Path], advance: Callable[[int], None]
) -> "Iterator[tuple[str, Stored]]":
    """(name, tensor) of every tensor, of which only the parts are read that are asked for.

    advance: called with the bytes of each part. Raises as `read_tensors` does.
    """
    if is_gguf_list(files):
        from yaie.models.gguf.stored import read_listed

        yield from read_listed(files[0], advance)
        return
    from safetensors import SafetensorError, safe_open

    seen: dict[str, Path] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118 (not a dictionary)
                    if name in seen:
                        raise ModelError(
                            f"the tensor {name} is in two shards, {seen[name].name} and {path.name} in "
                            f"{path.parent}: they are of two checkpoints. Fetch the model again."
                        )
                    seen[name] = path
                    yield name, StoredTensor(path, file, name, advance)
        except (SafetensorError, OSError) as error:
            raise _damaged(path, error) from None


def stored_shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Of every tensor, by its name. Raises as `read_tensors` does."""
    return {name: tuple(tensor.shape) for name, tensor in read_stored(files, lambda _: None)}


def _damaged(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} is not a whole safetensors file ({error}). It is damaged or its download was "
        "cut short; delete it and fetch the model again."
    )


def total_bytes(files: list[Path]) -> int:
    """Size on disk, for a progress bar."""
    return sum(path.stat().st_size for path in weight_files(files))


def is_gguf_list(files: list[Path]) -> bool:
    """Whether these files of a checkpoint are the list of a GGUF's tensors."""
    return [path.name for path in files] == [GGUF_LIST]


def weight_files(files: list[Path]) -> list[Path]:
    """Where the weights of a checkpoint are in the end. files: as `checkpoint_files` has them. Raises
    ModelError if a GGUF is gone."""
    if not is_gguf_list(files):
        return files
    from yaie.models.gguf.stored import gguf_files

    return gguf_files(files[0])


def served_bytes(files: list[Path], itemsize: int) -> int:
    """What the weights of a checkpoint take: as they are stored, but for those of a GGUF, which become
    numbers of so many bytes."""
    if not is_gguf_list(files):
        return total_bytes(files)
    return itemsize * sum(map(prod, stored_shapes(files).values()))
