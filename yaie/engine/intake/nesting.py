"""How deep a schema is once its references are followed. llguidance calls itself for each level, and a
stack that ends takes the whole process with it."""

from typing import Any

from yaie.engine.intake.circular import pointed_at

MOST_LEVELS = 800
"""Of braces and brackets, and one for each reference. 1,000 were compiled on a stack of 8 MB, 2,500 were
not."""


def levels_of(schema: Any) -> int:
    """The levels on the longest way into a schema. Schemas that lead back to each other are counted as
    if a way led through all of them, since it may. Each is looked at once."""
    return _Levels(schema).deepest()


class _Levels:
    """The schemas that references lead to, as the nodes of a graph."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._own: dict[int, int] = {}  # levels of a node without its references, by id
        self._next: dict[int, list[int]] = {}  # the nodes that it refers to
        rest = [schema]
        while rest:
            node = rest.pop()
            if id(node) not in self._own:
                rest += self._read(node)

    def _read(self, node: Any) -> list[Any]:
        """Note the levels of a node. Returns what it refers to."""
        targets: dict[int, Any] = {}
        level, depth = [node], 0
        while level:
            depth += 1
            inner: list[Any] = []
            for one in level:
                if isinstance(one, dict):
                    target = pointed_at(self._schema, one.get("$ref"))
                    if isinstance(target, dict):
                        targets[id(target)] = target
                    inner += one.values()
                elif isinstance(one, list):
                    inner += one
            level = [one for one in inner if isinstance(one, dict | list)]
        self._own[id(node)] = depth
        self._next[id(node)] = [*targets]
        return [*targets.values()]

    def deepest(self) -> int:
        """Tarjan (1972), with a stack of its own: components come out after all that they lead to."""
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        total: dict[int, int] = {}  # of nodes whose component is known
        open_nodes: list[int] = []
        start = id(self._schema)
        number[start] = low[start] = 0
        open_nodes.append(start)
        calls = [(start, iter(self._next[start]))]
        while calls:
            node, rest = calls[-1]
            inner = next(rest, None)
            if inner is not None:
                if inner not in number:
                    number[inner] = low[inner] = len(number)
                    open_nodes.append(inner)
                    calls.append((inner, iter(self._next[inner])))
                elif inner not in total:
                    low[node] = min(low[node], number[inner])
                continue
            calls.pop()
            if calls:
                low[calls[-1][0]] = min(low[calls[-1][0]], low[node])
            if low[node] == number[node]:
                self._close(node, open_nodes, total)
        return total[start]

    def _close(self, node: int, open_nodes: list[int], total: dict[int, int]) -> None:
        """The component that begins with a node is complete."""
        place = open_nodes.index(node)
        members = open_nodes[place:]
        del open_nodes[place:]
        behind = [total[it] for member in members for it in self._next[member] if it in total]
        own = sum(self._own[member] + 1 for member in members)
        total.update(dict.fromkeys(members, own + max(behind, default=0)))
