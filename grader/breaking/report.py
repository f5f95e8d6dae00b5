"""What `make break` prints: the attacks that do not count, the ten versions, the score, what is next."""

import textwrap

from rich.console import Console
from rich.text import Text

from grader.breaking.draw import num_rounds
from grader.breaking.outcome import apart
from grader.breaking.verdict import Result, Row
from grader.report.lines import clean, prose, show
from yaie.curriculum.manifest import Lab


def print_result(out: Console, lab: Lab, number: int, result: Result, file: str) -> None:
    """file: the learner's, as it is named to them."""
    lines: list[Text] = []
    for judged in result.attacks:
        if judged.refused:
            lines.append(Text(f"{judged.attack.name} does not count.", "yellow"))
            lines += prose(judged.refused, width=out.width, indent=2)
    if lines:
        lines.append(Text())
    right = {judged.attack.name: judged.right for judged in result.attacks}
    for row in result.rows:
        lines += _row(row, out.width)
        if row.told_by and row.gave is not None and (reference := right.get(row.told_by)):
            wanted, found, place = apart(reference, row.gave)
            lines += prose(
                f"It gives {found}{place}; right is {wanted}.", "dim", width=out.width, indent=5
            )
    show(out, lines)
    score = f"\n{result.score} of {len(result.rows)}"
    out.print(Text(score, "bold green" if result.score == len(result.rows) else "bold"))
    show(out, prose(_next(lab, number, result, file), width=out.width))


def _row(row: Row, width: int) -> list[Text]:
    wrong = row.version.wrong
    line = Text("  ").append(row.version.letter, "bold").append("  ")
    if row.is_shown:
        line.append("shown to you", "yellow")
        line.append(f", and caught by {row.told_by}" if row.told_by else "")
    elif row.told_by:
        line.append(f"caught by {clean(row.told_by)}", "green")
    else:
        line.append("looks right so far")
        return [line]
    sentence = f"Task {wrong.task}: {wrong.misconception}"
    indented = textwrap.wrap(sentence, max(20, min(width, 100) - 5))
    return [line, *(Text(" " * 5 + piece) for piece in indented)]


def _next(lab: Lab, number: int, result: Result, file: str) -> str:
    open_rows = [row for row in result.rows if not row.told_by and not row.is_shown]
    command, again = f"make break LAB={lab.key}", "" if number == 1 else f"--round {number}"
    if open_rows:
        letter = open_rows[0].version.letter
        options = f"{again} --show {letter}".strip()
        return (
            f"Next: write another attack in {file}, and call this again. What does the contract promise "
            "that no attack of yours asks about? To be shown version "
            f"{letter}: {command} ARGS='{options}'"
        )
    if number < num_rounds(lab):
        return f"Next: ten others: {command} ARGS='--round {number + 1}'"
    return (
        "That was the last round of this lab. Can you write a wrong version that keeps full marks? "
        f"Send it: python -m grader mistake {lab.key} FILE"
    )
