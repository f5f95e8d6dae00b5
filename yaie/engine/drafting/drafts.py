"""`Drafts`: hangs what drafts on a machine's hooks, each when it is first asked for."""

from yaie.engine.drafting.drafter import Drafter
from yaie.engine.drafting.forced import ForcedTokens
from yaie.engine.drafting.room import Room
from yaie.engine.drafting.verified import OnVerified, Verified
from yaie.engine.step.hooks import Hooks
from yaie.engine.step.isolation import Isolation


class Drafts:
    """Of one machine. follows_grammars: whether what they force is drafted."""

    def __init__(
        self,
        hooks: Hooks,
        room: Room,
        isolation: Isolation,
        tell: OnVerified,
        *,
        takes_back: bool = True,
    ) -> None:
        """tell: what became of drafts. takes_back: whether the model can forget a rejected one."""
        self.follows_grammars = False
        self._hooks = hooks
        self._room = room
        self._isolation = isolation
        self._takes_back = takes_back
        self._first = len(hooks.stages)  # those that are there decide about shares
        self._tell: OnVerified | None = tell

    def guess(self, drafter: Drafter) -> None:
        """Have guesses verified, after what is certain."""
        self._hooks.stages.append(drafter)
        self._hooks.observers.append(drafter)
        self._count()

    def follow_grammars(self) -> None:
        """Draft what grammars force, from now on: the model may still write it in other tokens. Twice is
        harmless."""
        if self._takes_back and not self.follows_grammars:
            self.follows_grammars = True
            self._hooks.stages.insert(self._first, ForcedTokens(self._room, self._isolation))
            self._count()

    def _count(self) -> None:
        if self._tell is not None:
            self._hooks.observers.append(Verified(self._room, self._isolation, self._tell))
            self._tell = None
