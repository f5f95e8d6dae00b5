"""`make break`: write the learner's file once, run what is not known yet, judge, report."""

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from grader.breaking.attacks import Attack, read_attacks
from grader.breaking.draw import LETTERS, Version, draw
from grader.breaking.memo import Memo
from grader.breaking.outcome import Outcome, same
from grader.breaking.report import print_result
from grader.breaking.running import Bounds, Run, run_attacks
from grader.breaking.template import write_template
from grader.breaking.verdict import Judged, Result, Row, judge
from grader.machine import CUDA, what_is_missing
from grader.runner import num_cores
from grader.selfcheck.variants import known_right, reference_folder, write_right, write_wrong
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.curriculum.progress import Progress as Passes
from yaie.curriculum.progress import part_digest

FOLDER = Path("breaks")
"""Beside `labs`: a file in a lab's own folder would be part of what is graded."""
Done = Callable[[], None]
BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Witness:
    """A version that is right. key: of what is known about it. seed: of unseeded draws."""

    name: str
    folder: Path
    key: str
    seed: int = 0


def run(lab_key: str, number: int, show: str, out: Console, err: Console, root: Path = ROOT) -> int:
    """Exit status: 0 if all ten are caught, 1 if not. Raises ConfigError."""
    lab = load_curriculum()[lab_key]
    if lack := what_is_missing(lab):
        raise ConfigError(lack)
    refuse_unfinished(lab, root)
    versions = draw(lab, number)
    memo = Memo.load(lab, root)
    file = root / FOLDER / f"{lab.key}.py"
    shown_file = (FOLDER / f"{lab.key}.py").as_posix()
    if show:
        _show(versions, show, memo)
    if write_template(file, lab):
        out.print(f"Wrote {shown_file}: your attacks go there.\n", soft_wrap=True)
    attacks = read_attacks(file, lab.key, shown_file)
    if CUDA in lab.verify and not memo.outcomes:
        err.print("Each version is compiled once: the first call may take minutes.\n")
    with _bar(err) as progress:
        bar = progress.add_task("versions", total=None)
        result = attack_all(
            lab,
            versions,
            attacks,
            file,
            root / "labs" / lab.key,
            memo,
            on_planned=lambda count: progress.update(bar, total=count),
            on_done=lambda: progress.advance(bar),
        )
    memo.save({attack.key for attack in attacks})
    print_result(out, lab, number, result, shown_file)
    return int(result.score < len(result.rows))


def refuse_unfinished(lab: Lab, root: Path) -> None:
    """Raises ConfigError if a task has no pass on the learner's files as they are."""
    passed = Passes.load(root).passed_tasks(lab, root / "labs" / lab.key)
    if missing := [task.id for task in lab.tasks if task.id not in passed]:
        tasks = (
            f"task {missing[0]} has" if len(missing) == 1 else f"tasks {', '.join(missing)} have"
        )
        raise ConfigError(
            f"finish lab {lab.key} first: {tasks} no pass on your files as they are; "
            f"make grade LAB={lab.key}",
            param="lab",
        )


def _show(versions: Sequence[Version], letter: str, memo: Memo) -> None:
    """Note that the learner has been shown a version."""
    by_letter = {version.letter: version.wrong.name for version in versions}
    if letter.upper() not in by_letter:
        raise ConfigError(f"there is no version {letter}; choose from {LETTERS}", param="show")
    if (name := by_letter[letter.upper()]) not in memo.shown:
        memo.shown.append(name)


def attack_all(
    lab: Lab,
    versions: Sequence[Version],
    attacks: Sequence[Attack],
    file: Path,
    mine: Path,
    memo: Memo,
    *,
    bounds: Bounds = BOUNDS,
    on_planned: Callable[[int], None] = lambda count: None,
    on_done: Done = lambda: None,
) -> Result:
    """First what is right, then each version with the attacks that count. What the memo knows is not run
    again, nor a version that an attack tells already. Raises ConfigError."""
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="yaie-break-") as scratch,
        ThreadPoolExecutor(num_cores()) as pool,
    ):
        try:
            party = _Party(lab, attacks, file, memo, bounds, stop, Path(scratch))
            witnesses = party.witnesses(mine)
            on_planned(len(witnesses) + len(versions))

            def witness(one: Witness) -> dict[str, str]:
                refused = party.ask(one)
                on_done()
                return refused

            problems: dict[str, str] = {}
            for refused in pool.map(witness, witnesses):
                problems |= refused
            judged = tuple(party.judge(attack, witnesses, problems) for attack in attacks)
            counting = [each for each in judged if not each.refused]

            def attack_one(version: Version) -> Row:
                row = party.attack(version, counting)
                on_done()
                return row

            return Result(judged, tuple(pool.map(attack_one, versions)))
        except BaseException:
            stop.set()  # every process is ended at its next poll, before the pool closes
            pool.shutdown(cancel_futures=True)
            raise


class _Party:
    """What all runs of one command share."""

    def __init__(
        self,
        lab: Lab,
        attacks: Sequence[Attack],
        file: Path,
        memo: Memo,
        bounds: Bounds,
        stop: threading.Event,
        scratch: Path,
    ) -> None:
        self._lab, self._memo, self._bounds, self._stop = lab, memo, bounds, stop
        self._attacks = [attack for attack in attacks if not attack.refused]
        self._scratch = scratch
        self._file = scratch / "attacks.py"  # what is saved meanwhile is for the next time
        shutil.copyfile(file, self._file)

    def witnesses(self, mine: Path) -> list[Witness]:
        """The reference twice, other right designs, the learner's part."""
        right = reference_folder(self._lab)
        digest = part_digest(right)
        found = [
            Witness("reference", right, digest),
            Witness("reference again", right, f"{digest} again", seed=1),
        ]
        for design in known_right(self._lab):
            folder = write_right(design, self._lab, self._scratch / design.name / self._lab.key)
            found.append(Witness(design.name, folder, part_digest(folder)))
        return [*found, Witness("yours", mine, part_digest(mine))]

    def ask(self, witness: Witness) -> dict[str, str]:
        """Run what is not known of a right version. Returns attacks that stay unknown, and why."""
        open_ones = [a for a in self._attacks if self._memo.get(witness.key, a.key) is None]
        if witness.seed:
            open_ones.reverse()  # what leans on another attack differs
        return self._run(witness.folder, witness.key, open_ones, witness.seed).open

    def judge(
        self, attack: Attack, witnesses: Sequence[Witness], problems: dict[str, str]
    ) -> Judged:
        first, second, *designs, mine = (self._memo.get(w.key, attack.key) for w in witnesses)
        names = [witness.name for witness in witnesses[2:-1]]
        others = dict(zip(names, designs, strict=True))
        return judge(attack, (first, second), mine, others, problems.get(attack.name, ""))

    def attack(self, version: Version, counting: Sequence[Judged]) -> Row:
        """Whether an attack that counts tells a version."""
        folder = write_wrong(
            version.wrong, self._lab, self._scratch / version.letter / self._lab.key
        )
        key = part_digest(folder)
        if (row := self._told(version, key, counting)).told_by:
            return row
        open_ones = [j.attack for j in counting if self._memo.get(key, j.attack.key) is None]
        right = {judged.attack.name: judged.right for judged in counting}
        self._run(folder, key, open_ones, 0, right)
        return self._told(version, key, counting)

    def _told(self, version: Version, key: str, counting: Sequence[Judged]) -> Row:
        is_shown = version.wrong.name in self._memo.shown
        for judged in counting:
            gave = self._memo.get(key, judged.attack.key)
            if gave is not None and not same(gave, judged.right):
                return Row(version, judged.attack.name, gave, is_shown)
        return Row(version, is_shown=is_shown)

    def _run(
        self,
        folder: Path,
        key: str,
        attacks: Sequence[Attack],
        seed: int,
        right: dict[str, Outcome | None] | None = None,
    ) -> Run:
        """Run attacks and remember what came of them. right: what the reference gives; the first attack
        that gives something else is the last one."""
        ran = run_attacks(
            self._lab,
            folder,
            self._file,
            [attack.name for attack in attacks],
            seed=seed,
            bounds=self._bounds,
            enough=lambda name, gave: right is not None and not same(gave, right[name]),
            stop=self._stop,
        )
        for attack in attacks:
            if attack.name in ran.outcomes:
                self._memo.put(key, attack.key, ran.outcomes[attack.name])
        return ran


def _bar(err: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
