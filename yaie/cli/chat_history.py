"""What was typed in earlier chats, for the arrow keys; kept as far as the disk allows."""

from contextlib import suppress

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from yaie.cli.console import state_dir


class _KeptHistory(FileHistory):
    """A line that cannot be written is known until the chat ends, and no longer."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def open_history() -> History:
    """Of all chats; of this one alone where the file cannot be opened."""
    try:
        file = state_dir() / "chat_history"
        file.touch()
    except OSError:
        return InMemoryHistory()
    return _KeptHistory(file)
