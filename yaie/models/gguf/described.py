"""A GGUF as a model's folder: what is written once, and found again at the next start.

~/.cache/yaie/gguf/SmolLM2-135M-Instruct.Q4_1-3f9a0c51d2e4f00d/
    config.json  generation_config.json                     of the metadata
    tokenizer.json  tokenizer_config.json  chat_template.jinja
    gguf_tensors.json                                       where each tensor lies in the GGUF
"""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from yaie.core.errors import ModelError
from yaie.models.config import read_config
from yaie.models.gguf.config import FACTORS, config_values, family_of, generation_values
from yaie.models.gguf.names import entries
from yaie.models.gguf.parts import Model, all_parts, base_name, models_among, read_model
from yaie.models.gguf.stored import Entry, Piece, TensorList, read_listed
from yaie.models.gguf.tokenizer import write_tokenizer
from yaie.models.lookalikes import GGUF_LIST, refuse_pointer
from yaie.system.files import NO_PLACE, cannot_write, user_cache

logger = logging.getLogger(__name__)

FORMAT = 2
"""Of what is written here: another number, another folder."""


def the_file_in(folder: Path) -> Path | None:
    """The GGUF, or the first part of the only one, in a folder; None if there is none.

    Raises ModelError that names them if there are several.
    """
    found = models_among([path.name for path in folder.iterdir()])
    if len(found) > 1:
        raise ModelError(
            f"{folder} has {len(found)} GGUF models: name one of their files ("
            f"{', '.join(names[0] for names in found.values())})."
        )
    return next((folder / names[0] for names in found.values()), None)


def described(path: Path) -> Path:
    """The folder that describes the GGUF at `path`, or that it is a part of; written if need be.

    Raises ModelError if it cannot be read or served, or if nothing can be written to YAIE's cache.
    """
    parts = all_parts(path)
    for part in parts:
        refuse_pointer(part)
    files = tuple(
        (str(part.resolve()), part.stat().st_size, part.stat().st_mtime_ns) for part in parts
    )
    facts = json.dumps([FORMAT, version("transformers"), version("tokenizers"), files])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    cache = user_cache("gguf")
    folder = cache / f"{base_name(path.name)}-{digest}"
    if (folder / GGUF_LIST).is_file():
        return folder
    model = read_model(parts[0])
    family_of(path, model.metadata)
    with _draft_in(cache) as draft:
        _write(parts[0], model, files, draft)
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / GGUF_LIST).is_file():  # or another process was faster
                raise
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _write(path: Path, model: Model, files: tuple[tuple[str, int, int], ...], draft: Path) -> None:
    name, family = family_of(path, model.metadata)
    values = config_values(path, model, _factors(model, files, draft))
    _write_json(draft / "config.json", values)
    _write_json(draft / "generation_config.json", generation_values(model.metadata))
    try:
        config = read_config(draft)
    except ModelError as error:
        raise ModelError(
            f"{path} describes no model that can be served: {error.message}"
        ) from error
    listed = entries(path, model, config, name, family)
    write_tokenizer(path, model.metadata, draft)
    TensorList(files, listed).write(draft / GGUF_LIST)


def _factors(
    model: Model, files: tuple[tuple[str, int, int], ...], draft: Path
) -> dict[str, Tensor]:
    """The tensors that are no weights, read."""
    found = {name: model.tensors[name] for name in FACTORS if name in model.tensors}
    if not found:
        return {}
    listed = {
        name: Entry((Piece(number, info.start, info.shape, info.kind),), shape=info.shape)
        for name, (number, info) in found.items()
    }
    path = draft / "factors.json"
    TensorList(files, listed).write(path)
    factors = {name: tensor[(slice(None),)] for name, tensor in read_listed(path, lambda _: None)}
    path.unlink()
    return factors


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", "utf-8")


@contextmanager
def _draft_in(cache: Path) -> Iterator[Path]:
    """A folder in the cache that is gone afterwards unless it has got another name."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=cache))
        draft.chmod(0o755)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        raise ModelError(
            f"{cannot_write(cache, error)}, where what a GGUF says is kept. Set YAIE_CACHE to a folder "
            "that can be written."
        ) from None
