"""What a mutant is, of whatever language."""

from dataclasses import dataclass

LAYOUT = "layout: "
"""How the change of a mutant of layout begins: it counts apart."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """file: below the lab's folder. line: the source line that is changed, stripped. source: the whole
    file as changed. task: of the region."""

    file: str
    function: str
    line: str
    change: str
    task: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Names the mutant as long as its line stays what it is, wherever that line moves."""
        return self.file, self.function, self.line, self.change

    @property
    def is_layout(self) -> bool:
        return self.change.startswith(LAYOUT)
