"""Where the part under test lies, and how it becomes a package of this process.

A part is a folder with the files of one lab: the learner's in `labs`, the reference in `solutions`, or
one handed in. Whatever its folder is called, it is imported as `labs.<lab>`, which is what its own
absolute imports say; only one lab is graded in a process, so nothing is in the way.
"""

import importlib
import importlib.util
import linecache
import re
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from grader.snapshot import Copy, Refused, Snapshot, read_snapshot
from grader.verdict import Explanation
from yaie.core.errors import ConfigError
from yaie.curriculum.editions import edition_in, edition_of
from yaie.curriculum.manifest import ROOT, Lab

MOST_CHARACTERS = 2000
FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+) in (?P<name>\S+)')
STUB = re.compile(r"^(?P<lab>\w+) task (?P<task>\d+\.\d+): not implemented yet; see chapter ")


@dataclass(frozen=True, slots=True)
class Submission:
    """One lab's folder. Paths in reports are relative to `shown_from`.

    kept: what is graded in place of the folder, where a student handed it in (`handed_in`); it then runs
    in folders of its own. refused: a sentence, if it is not graded.
    """

    lab: Lab
    folder: Path
    shown_from: Path = ROOT
    kept: Snapshot | None = field(default=None, compare=False, repr=False)
    refused: str = field(default="", compare=False)

    def shown(self, file: str | Path) -> str:
        """A file as a report names it."""
        path = Path(file).resolve()
        base = self.shown_from if path.is_relative_to(self.shown_from) else self.folder.parent
        return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name

    @property
    def edition(self) -> int | None:
        """Of the lab's contract, as the files that are graded say; None if they do not."""
        if self.kept is None:
            return None if self.refused else edition_of(self.folder)
        return edition_in(
            content.split(b"\n", 1)[0].decode("utf-8", "replace")
            for content in self.kept.files.values()
        )

    def owns(self, file: str) -> bool:
        """Whether a source file belongs to the part."""
        try:
            return Path(file).resolve().is_relative_to(self.folder)
        except OSError:  # `<string>` in a working folder that has been deleted
            return False


def find_submission(lab: Lab, impl: str = "labs", root: Path = ROOT) -> Submission:
    """impl: "labs", "solutions", or a folder that is the part, or holds it as <lab> or labs/<lab>.

    Raises ConfigError if there is no part.
    """
    if impl in ("labs", "solutions"):
        candidates = [root / impl / lab.key]
    else:
        base = Path(impl).expanduser().resolve()
        candidates = [base / "labs" / lab.key, base / lab.key, base]
    for folder in candidates:
        if (folder / "__init__.py").is_file():
            shown_from = root if folder.is_relative_to(root) else folder.parent
            return Submission(lab, folder.resolve(), shown_from)
    advice = "`make stubs` writes it" if impl == "labs" else "IMPL is labs, solutions or a folder"
    raise ConfigError(f"{candidates[0]} holds no part {lab.key}; {advice}", param="impl")


def submission_in(folder: Path, lab: Lab) -> Submission | None:
    """A lab in a folder that may hold several, as labs/<lab> or <lab>; None if it does not."""
    folder = folder.expanduser().resolve()
    for part in (folder / "labs" / lab.key, folder / lab.key):
        if (part / "__init__.py").is_file():
            return Submission(lab, part.resolve(), folder)
    return None


def handed_in(student: Path, lab: Lab) -> Submission | None:
    """A lab in a student's folder, as labs/<lab> or <lab>, read now; None if it is not there.

    student: not resolved, for a link in its place is refused as any other.
    """
    for part in (f"labs/{lab.key}", lab.key):
        folder = student / part
        if folder.is_symlink() or (folder / "__init__.py").is_file():
            try:
                return Submission(lab, folder, student, kept=read_snapshot(student, part))
            except Refused as error:
                return Submission(lab, folder, student, refused=str(error))
    return None


def copied(submission: Submission, room: Path) -> tuple[Submission, Copy]:
    """A kept submission, written to an empty folder, with the names that it has in the student's."""
    assert submission.kept is not None
    below = submission.folder.relative_to(submission.shown_from)
    copy = submission.kept.write_to(room / below)
    return Submission(submission.lab, copy.folder, room), copy


def load(submission: Submission) -> ModuleType:
    """Import the part. Raises whatever its code raises; `explain_import` puts that into words."""
    name = f"labs.{submission.lab.key}"
    importlib.import_module("labs")
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    return import_package(name, submission.folder / "__init__.py")


def import_package(name: str, file: Path) -> ModuleType:
    """Run a package's `__init__.py` under a name, which stays in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def explain_import(error: BaseException, submission: Submission) -> Explanation:
    """Why the part cannot be imported: for what is not Python, file, line and caret, nothing more."""
    if isinstance(error, SyntaxError):
        where = ""
        if error.filename:
            where = f"{submission.shown(error.filename)}, line {error.lineno}{_caret(error)}"
        return Explanation(
            claim="The part can be read as Python.",
            problem=f"{type(error).__name__}: {error.msg}",
            where=where,
        )
    return Explanation(
        claim="The part can be imported.",
        problem="It ended the program (sys.exit)."
        if isinstance(error, SystemExit)
        else told(error),
        where=locate(error, submission),
    )


def told(error: BaseException) -> str:
    """Type and message of an error, whatever the part has made of its message."""
    try:
        message = str(error)[:MOST_CHARACTERS]
    except Exception:  # noqa: BLE001
        message = "(its message cannot be read)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def locate(error: BaseException, submission: Submission) -> str:
    """The innermost line of the part that an error passed through, with its source, and that of the
    function that called it, if it is one of the part's; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if submission.owns(frame.filename)]
    if not mine:
        return ""
    last = mine[-1]
    where = place(submission, last.filename, last.lineno or 0, last.name)
    outer = [frame for frame in mine if frame.name not in (last.name, "<module>")]
    if not outer:
        return where
    caller = outer[-1]
    return (
        f"{where}\ncalled at {place(submission, caller.filename, caller.lineno or 0, caller.name)}"
    )


def locate_in_grader(error: BaseException) -> str:
    """The innermost line of ours that an error passed through, with its source; "" if none. Not the
    part's, nor a library's."""
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT / "grader")
        and "hypothesis" not in frame.filename
    ]
    if not ours:
        return ""
    file = Path(ours[-1].filename).relative_to(ROOT).as_posix()
    return f"{file}, line {ours[-1].lineno}, in {ours[-1].name}\n    {ours[-1].line}"


def locate_in_trace(trace: str, submission: Submission) -> str:
    """The same, from what faulthandler wrote: the innermost line comes first there."""
    for file, line, name in FRAME.findall(trace):
        if submission.owns(file):
            return place(submission, file, int(line), name)
    return ""


def place(submission: Submission, file: str, line: int, name: str = "") -> str:
    """A line of the part as a report shows it, with its source. name: of the function."""
    source = linecache.getline(file, line).strip()
    function = f", in {name}" if name else ""
    return f"{submission.shown(file)}, line {line}{function}" + (
        f"\n    {source}" if source else ""
    )


def _caret(error: SyntaxError) -> str:
    """The line with a caret under the place, as the interpreter shows it; "" if it is not known."""
    text = (error.text or "").rstrip("\n")
    if not text.strip():
        return ""
    indent = len(text) - len(text.lstrip())
    column = min(max((error.offset or 1) - 1 - indent, 0), len(text.strip()))
    # One character for each tab, so that the caret stands where it should.
    return f"\n    {text.strip().expandtabs(1)}\n    {' ' * column}^"
