"""Each chapter's commands print what the chapter says that they print, in a fresh copy."""

import pytest

from book.tools.blocks import ConsoleError, chapters, read_chapter
from book.tools.console import difference, matches
from book.tools.sandbox import run_chapter

MOST_COMMANDS = 6  # of a chapter: the whole suite has to stay short


def runs_something(chapter: str) -> bool:
    try:
        return any(not block.unrun for block in read_chapter(chapter))
    except ConsoleError:
        return True  # for the test to say


RUNNING = [name for name in chapters() if runs_something(name)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.nightly
@pytest.mark.parametrize("chapter", RUNNING)
def test_its_commands_print_what_the_chapter_says(chapter):
    wrong = [
        difference(result.command, result.output, chapter)
        for result in run_chapter(read_chapter(chapter), chapter)
        if not matches(result.command.expected, result.output)
    ]
    assert not wrong, "\n\n".join(["", *wrong])


@pytest.mark.parametrize("chapter", chapters())
def test_its_blocks_keep_to_the_rules_and_run_few_commands(chapter):
    blocks = read_chapter(chapter)  # raises ConsoleError for a block that breaks a rule
    run = [command for block in blocks if not block.unrun for command in block.commands]
    assert len(run) <= MOST_COMMANDS, [command.text for command in run]
