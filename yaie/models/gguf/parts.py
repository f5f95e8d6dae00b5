"""The files that one model lies in: NAME.gguf, or NAME-00001-of-00003.gguf and its siblings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.gguf.header import Header, TensorInfo, read_header

_PART = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.I)
_TYPE = re.compile(
    r"(?:^|[-._/])(?P<type>(?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|B?F16|FP16|F32))$",
    re.I,
)
BESIDE = ("mmproj", "imatrix", "mtp-")
"""What names of files begin with that are no models: what encodes images, statistics, a draft head."""


@dataclass(frozen=True, slots=True)
class Model:
    """All parts of a model, as one. metadata: of the first, where llama.cpp writes everything.
    tensors: by name, with the number of the file in `files`."""

    files: tuple[Path, ...]
    metadata: dict[str, Any]
    tensors: dict[str, tuple[int, TensorInfo]]


def base_name(name: str) -> str:
    """A file's name without .gguf, and without the number of its part."""
    found = _PART.fullmatch(name)
    return found["name"] if found else re.sub(r"\.gguf$", "", name, flags=re.I)


def part_names(name: str) -> list[str]:
    """The names of all parts of the model that this file is a part of, in order."""
    found = _PART.fullmatch(name)
    if not found:
        return [name]
    count = int(found["count"])
    start, end = found["name"], f"-of-{found['count']}{found['suffix']}"
    return [f"{start}-{number:05}{end}" for number in range(1, count + 1)]


def models_among(names: Sequence[str]) -> dict[str, list[str]]:
    """From the name of each GGUF model among these files to those of its parts that are there."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        last = name.rpartition("/")[2]
        if last.lower().endswith(".gguf") and not last.lower().startswith(BESIDE):
            found.setdefault(base_name(name), []).append(name)
    return found


def of_type(place: str, wanted: str, names: Sequence[str]) -> list[str]:
    """The files, in order, of the model among these that is of a type (as Q4_K_M, in either case), or
    that has this file name.

    place: where they are, for messages. Raises ModelError that names the types which are there.
    """
    models = models_among(names)
    types = {base: _type_of(base) for base in models}
    found = [
        files
        for base, files in models.items()
        if types[base].lower() == wanted.lower() or wanted in files
    ]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(files[0] for files in found)
        raise ModelError(
            f"{place} has {len(found)} GGUF models of the type {wanted}: give the name of a file in its "
            f"place ({listed})."
        )
    raise ModelError(f"{place} has no GGUF of the type {wanted}. {there_is(names)}")


def there_is(names: Sequence[str]) -> str:
    """A sentence that says which types of GGUF are among these files."""
    types = sorted({_type_of(base) or files[0] for base, files in models_among(names).items()})
    return f"What is there: {', '.join(types)}." if types else "It has none at all."


def _type_of(base: str) -> str:
    """What a file's name says its tensors are of, or the name of its folder; "" if neither does."""
    folder, _, name = base.rpartition("/")
    found = _TYPE.search(name) or _TYPE.search(folder)
    return found["type"] if found else ""


def all_parts(path: Path) -> list[Path]:
    """Of the model that `path` is a part of. Raises ModelError that names those that are missing."""
    parts = [path.with_name(name) for name in part_names(path.name)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(
            f"{path.parent} lacks {len(missing)} of the {len(parts)} parts of {base_name(path.name)}: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}. Fetch them into the same "
            "folder."
        )
    return parts


def read_model(path: Path) -> Model:
    """Read the headers of all parts. Raises ModelError as `read_header` does, and for parts that do not
    belong together."""
    headers = [read_header(part) for part in all_parts(path)]
    stated = [header.metadata.get("split.count", 1) for header in headers]
    if any(count not in (len(headers), 0) for count in stated):
        raise ModelError(
            f"{path} is part of a model in {max(stated)} files, and its name says {len(headers)}: give "
            "each part its name again (NAME-00001-of-00003.gguf), all in one folder."
        )
    tensors: dict[str, tuple[int, TensorInfo]] = {}
    for number, header in enumerate(headers):
        for name, info in header.tensors.items():
            if name in tensors:
                raise _mixed(path, f"the tensor {name} is in two of its parts")
            tensors[name] = number, info
    _check_count(path, headers, len(tensors))
    return Model(tuple(header.path for header in headers), headers[0].metadata, tensors)


def _check_count(path: Path, headers: Sequence[Header], found: int) -> None:
    wanted = headers[0].metadata.get("split.tensors.count", found)
    if len(headers) > 1 and wanted != found:
        raise _mixed(path, f"{found} tensors are in its parts, and there should be {wanted}")


def _mixed(path: Path, why: str) -> ModelError:
    return ModelError(
        f"the parts of {base_name(path.name)} in {path.parent} are of several models ({why}). Fetch all "
        "of them again."
    )
