"""`make break` on learners' parts: attacks that work, that do not, and that would harm the grader."""

import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grader.breaking import run as command
from grader.breaking.attacks import Attack, read_attacks
from grader.breaking.draw import draw, usable
from grader.breaking.memo import Memo
from grader.breaking.run import attack_all
from grader.breaking.running import Bounds, run_attacks
from grader.breaking.verdict import Result
from grader.selfcheck.variants import reference_folder, write_wrong
from tests.learner import hand_in, record_pass
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.system.terminal import Terminal

TREE = load_curriculum()["radix_tree"]
WRITTEN = Path(__file__).with_name("breaking")
SHORT = Bounds(attack=1.0)
ATTACKS = """
import random

from numpy import ctypeslib


def attack_locks(part):
    tree = part.RadixTree(2)
    _, node = tree.insert([1, 2, 3, 4], [10, 11])
    tree.lock(node)
    tree.lock(node)
    tree.unlock(node)
    return tree.num_evictable, tree.evict(2)


def attack_nothing(part):
    return part.RadixTree(2).num_blocks


def attack_defect(part):
    return part.RadixTree(1).insert([1, 2], [1, 2])[0]


def attack_too_much(part):
    return part.node.Node().lock_count


def attack_random(part):
    return random.random()


def attack_endless(part):
    while True:
        pass


def attack_crash(part):
    return ctypeslib.ctypes.string_at(0)


def attack_object(part):
    return part.RadixTree(2)
"""


class Judged(NamedTuple):
    """What became of ATTACKS. again: the same once more, when nothing could be run any more."""

    result: Result
    again: Result

    def why(self, name: str) -> str:
        return next(j.refused for j in self.result.attacks if j.attack.name == f"attack_{name}")

    def told(self, name: str) -> set[str]:
        return {
            row.version.wrong.name for row in self.result.rows if row.told_by == f"attack_{name}"
        }


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """On a part that returns from insert how many blocks it took, which the grader would not know."""
    root = tmp_path_factory.mktemp("break")
    file = root / "attacks.py"
    file.write_text(ATTACKS)
    defect = next(w for w in usable(TREE) if w.name == "insert_returns_what_is_new")
    mine = write_wrong(defect, TREE, root / "labs" / "radix_tree")
    versions, memo = draw(TREE, 1)[5:], Memo.load(TREE, root)

    def judge(memo: Memo) -> Result:
        attacks = read_attacks(file, TREE.key, "attacks.py")
        result = attack_all(TREE, versions, attacks, file, mine, memo, bounds=SHORT)
        memo.save({attack.key for attack in attacks})
        return result

    first = judge(memo)
    with pytest.MonkeyPatch.context() as patch:

        def run_again(lab: Lab, folder: Path, file: Path, names: list[str], **how: Any) -> Any:
            # On a busy machine it is not known whether an attack that is ended had no end.
            assert set(names) <= {"attack_endless"}, f"{names} run again"
            return run_attacks(lab, folder, file, names, **how)

        patch.setattr(command, "run_attacks", run_again)
        return Judged(first, judge(Memo.load(TREE, root)))


def test_an_attack_tells_what_it_asks_about(judged: Judged) -> None:
    assert not judged.why("locks")
    assert "locks_do_not_count" in judged.told("locks")
    assert 0 < judged.result.score < 5


def test_an_attack_that_tells_nothing_counts_and_tells_nothing(judged: Judged) -> None:
    assert not judged.why("nothing")
    assert not judged.told("nothing")


def test_what_the_own_part_does_otherwise_is_shown_with_both_values(judged: Judged) -> None:
    why = judged.why("defect")
    assert why.startswith("Your own part gives 2, the reference 0. Either the attack asks for more")
    assert "or your part has a defect that the grader missed" in why


def test_what_another_right_design_does_otherwise_is_no_promise(judged: Judged) -> None:
    why = judged.why("too_much")
    assert why.startswith(
        "It asks for more than the contract promises: another right design (chained"
    )


def test_a_random_attack_is_refused(judged: Judged) -> None:
    assert "two runs on the reference differ" in judged.why("random")


def test_an_endless_attack_is_ended(judged: Judged) -> None:
    assert "still running after 1 seconds" in judged.why("endless")


def test_an_attack_that_crashes_the_interpreter_ends_alone(judged: Judged) -> None:
    assert "crashed the interpreter (SIGSEGV)" in judged.why("crash")


def test_an_object_cannot_be_compared(judged: Judged) -> None:
    assert "an object of RadixTree" in judged.why("object")


def test_nothing_that_is_known_is_run_again(judged: Judged) -> None:
    """What has no value is not known: on a busy machine an endless attack may end elsewhere."""
    first, again = (
        replace(one, attacks=tuple(j for j in one.attacks if j.attack.name != "attack_endless"))
        for one in (judged.result, judged.again)
    )
    assert again == first
    assert "still running" in judged.why("endless")


def test_a_version_that_loops_is_caught(tmp_path: Path) -> None:
    folder = shutil.copytree(reference_folder(TREE), tmp_path / "radix_tree")
    with (folder / "__init__.py").open("a") as file:
        file.write("\nRadixTree.peek = lambda *_: [0 for _ in iter(int, 1)]\n")
    attacks = tmp_path / "a.py"
    attacks.write_text("def attack_a(part):\n    return part.RadixTree(1).peek([1], 1)\n")
    bounds = Bounds(attack=1.0, memory_gib=4.0)
    ran = run_attacks(TREE, folder, attacks, ["attack_a"], bounds=bounds)
    assert ran.open or set(ran.outcomes["attack_a"]) & {"died", "raised"}


def test_a_file_that_cannot_be_run_is_an_error_of_its_own(tmp_path: Path) -> None:
    attacks = tmp_path / "a.py"
    attacks.write_text("x = 1 / 0\n\n\ndef attack_a(part):\n    return x\n")
    with pytest.raises(ConfigError, match="cannot be run: ZeroDivisionError: division by zero"):
        run_attacks(TREE, reference_folder(TREE), attacks, ["attack_a"])


def test_the_command_from_the_first_call_to_nine_of_ten(labs: Path) -> None:
    """One learner: not finished, a first file, attacks of their own, a version that is shown."""
    root, out = labs.parent, io.StringIO()
    console = Terminal(file=out, width=300)

    def call(show: str = "") -> int:
        out.seek(0)
        out.truncate()
        return command.run("radix_tree", 1, show, console, console, root)

    hand_in(labs, "radix_tree")
    record_pass(labs, "radix_tree", tasks=4)
    with pytest.raises(ConfigError, match=r"^finish lab radix_tree first: task 4.5 has no pass"):
        call()
    assert not (root / "breaks").exists()
    record_pass(labs, "radix_tree")
    file = root / "breaks/radix_tree.py"
    file.parent.mkdir()
    shutil.copy(WRITTEN / "radix_tree.py", file)
    before = file.read_bytes()
    assert call() == 1
    said = out.getvalue()
    assert file.read_bytes() == before
    assert "Wrote" not in said
    assert "9 of 10" in said
    assert (
        "  I  caught by attack_locks_count\n     Task 4.4: A node is locked or it is not.\n" in said
    )
    assert "It gives 3 in place [0][0]; right is 0.\n" in said
    assert "  H  looks right so far\n" in said
    assert draw(TREE, 1)[7].wrong.misconception not in said
    assert "--show H'" in said
    assert call("h") == 1
    assert (
        f"  H  shown to you\n     Task 4.5: {draw(TREE, 1)[7].wrong.misconception}\n"
        in out.getvalue()
    )
    assert "\x1b" not in out.getvalue()
    with pytest.raises(ConfigError, match="there is no version K"):
        call("K")


@pytest.mark.nightly
@pytest.mark.parametrize("key", ["sampler"])
def test_written_attacks_tell_at_least_eight_of_ten(key: str, tmp_path: Path) -> None:
    """The radix tree's are counted in the test of the command."""
    lab, file = load_curriculum()[key], WRITTEN / f"{key}.py"
    attacks = read_attacks(file, key, file.name)
    mine = ROOT / "solutions" / key
    result = attack_all(lab, draw(lab, 1), attacks, file, mine, Memo.load(lab, tmp_path))
    assert {j.attack.name: j.refused for j in result.attacks if j.refused} == {}
    assert result.score >= 8


@pytest.mark.nightly
@pytest.mark.parametrize("lab", load_curriculum().labs, ids=lambda lab: lab.key)
def test_each_labs_example_counts_and_its_versions_can_be_made(lab: Lab, tmp_path: Path) -> None:
    for wrong in usable(lab):
        write_wrong(wrong, lab, tmp_path / wrong.name)
    file = ROOT / "grader/breaking/examples" / f"{lab.key}.py"
    attacks: tuple[Attack, ...] = read_attacks(file, lab.key, file.name)
    mine = ROOT / "solutions" / lab.key
    result = attack_all(lab, (), attacks, file, mine, Memo.load(lab, tmp_path))
    assert [(j.attack.name, j.refused) for j in result.attacks if j.refused] == []
