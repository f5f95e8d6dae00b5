"""Makes the calls of a learner's attacks on one version, in a process of its own:
`python -m grader.breaking.worker '{"lab": ...}'`. `running.py` starts and watches it.
"""

import importlib.util
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from grader.breaking.outcome import raised, returned
from grader.worker import Order, end, limit, open_channel

NAME = "attacks"


@dataclass(slots=True)
class AttackOrder(Order):
    """file: with the attacks. attacks: the names of those to run, in this order."""

    file: str = ""
    attacks: list[str] = field(default_factory=list)


def main() -> None:
    order = AttackOrder(**json.loads(sys.argv[1]))
    emit = open_channel(order)
    if part := _load_part(order, emit):
        _attack(part, order, emit)
    end(emit)


def _load_part(order: AttackOrder, emit: Callable[[dict[str, Any]], None]) -> ModuleType | None:
    """The part, imported and compiled; None if that fails, which is told."""
    from grader.compiling import compile_part
    from grader.submission import Submission, explain_import, load
    from yaie.core.errors import YaieError
    from yaie.curriculum.manifest import load_curriculum

    submission = Submission(
        load_curriculum()[order.lab], Path(order.folder), Path(order.shown_from)
    )
    limit(order)
    try:
        part = load(submission)
    except BaseException as error:  # noqa: BLE001, a part may raise anything
        emit({"event": "broken", "sentence": explain_import(error, submission).problem})
        return None
    try:
        complaint = compile_part(submission)
    except YaieError as error:
        emit({"event": "lack", "sentence": error.message})
        return None
    if complaint:
        emit({"event": "broken", "sentence": complaint.problem})
        return None
    return part


def _attack(part: ModuleType, order: AttackOrder, emit: Callable[[dict[str, Any]], None]) -> None:
    """Run the attacks one after the other, each on a view of its own."""
    emit({"event": "attack", "name": ""})
    _seed(order.seed)
    try:
        attacks = _load_file(Path(order.file))
    except BaseException as error:  # noqa: BLE001, the file may raise anything
        problem = f"{type(error).__name__}: {error}"
        emit({"event": "unreadable", "sentence": problem})
        return
    for name in order.attacks:
        emit({"event": "attack", "name": name})
        _seed(order.seed)
        try:
            outcome = returned(vars(attacks)[name](public_view(part)))
        except BaseException as error:  # noqa: BLE001, what it raises is its outcome
            outcome = raised(error)
        emit({"event": "outcome", "name": name, "outcome": outcome})


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


def _seed(seed: int) -> None:
    """What draws without a seed of its own draws otherwise in the other run of the reference."""
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def public_view(part: ModuleType) -> SimpleNamespace:
    """What a package offers: the names in its `__all__`, and for each of its modules those that the
    module defines, without a leading underscore."""
    view = SimpleNamespace(**{name: vars(part)[name] for name in vars(part).get("__all__", ())})
    prefix = f"{part.__name__}."
    for name, module in sorted(sys.modules.items()):
        short = name.removeprefix(prefix)
        if name.startswith(prefix) and "." not in short and not hasattr(view, short):
            public = {
                key: value
                for key, value in vars(module).items()
                if not key.startswith("_")
                and str(getattr(value, "__module__", name)).startswith(prefix)
            }
            setattr(view, short, SimpleNamespace(**public))
    return view


if __name__ == "__main__":
    main()
