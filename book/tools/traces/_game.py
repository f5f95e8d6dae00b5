"""What the whole game says of a step: made of what changed, not written by hand."""

from collections.abc import Mapping
from typing import Any

from book.tools.traces._story import counted, listed
from yaie.core.request import Request

State = dict[str, Any]
BLOCK_SIZE = 16
NUMBERS = {2: "two", 3: "three", 4: "four"}


def say(before: State, now: State, requests: Mapping[str, Request], number: int) -> str:
    """A caption. before, now: the states around the step; requests: as they are after it."""
    if not number:
        counts = " + ".join(str(request.num_tokens) for request in requests.values())
        return (
            "Four requests arrive at once. Each square is a token that the model has to compute: "
            f"{counts}. Once it is computed, it moves to the memory, into a slot of a block."
        )
    told = [
        _preempted(now),
        *_prefills(before, now, requests),
        _waits(now, number),
        _decodes(now, requests),
        _taken(before, now),
        _ended(before, now, requests),
    ]
    return " ".join(sentence for sentence in told if sentence)


def _is_prefill(row: list[Any], requests: Mapping[str, Request]) -> bool:
    name, start, count, _ = row
    return start < requests[name].num_prompt_tokens or count > 1


def _prefills(before: State, now: State, requests: Mapping[str, Request]) -> list[str]:
    """Requests that do the same are told in one sentence."""
    alike: dict[str, list[str]] = {}
    for row in now["rows"]:
        if _is_prefill(row, requests):
            alike.setdefault(_prefill(before, row, requests[row[0]]), []).append(row[0])
    return [
        f"{listed(names)} compute {words.format(each=' each')}."
        if names[1:]
        else f"{names[0]} computes {words.format(each='')}."
        for words, names in alike.items()
    ]


def _prefill(before: State, row: list[Any], request: Request) -> str:
    name, start, count, text = row
    comes = name not in before["tables"]
    whole = bool(text)  # it has drawn, so nothing is missing
    if comes and not start:
        return (
            f"all {count} prompt tokens at once: prefill" if whole else f"a first chunk of {count}"
        )
    if comes:
        rest = f"the other {count}{{each}}" if whole else f"a chunk of {count}{{each}}"
        again = ", all but the last for the second time" if request.num_preemptions else ""
        return f"{rest}{again}; {start} were found in the tree"
    return f"the last {count} of its prompt" if whole else f"a next chunk of {count}"


def _waits(now: State, number: int) -> str:
    if number > 1 or not now["queue"]:
        return ""
    return (
        f"{listed(now['queue'])} begin with the same two blocks, which "
        f"{now['rows'][0][0]} is computing now: they wait a step and share them."
    )


def _decodes(now: State, requests: Mapping[str, Request]) -> str:
    names = [row[0] for row in now["rows"] if not _is_prefill(row, requests)]
    if not names:
        return ""
    if len(names) == 1:
        waiting = f", while {listed(now['queue'])} wait for room" if now["queue"][1:] else ""
        return f"{names[0]} decodes: one token{waiting}."
    return f"{listed(names)} decode: one token each."


def _taken(before: State, now: State) -> str:
    """Tables that were there before and grew."""
    grown = {
        name: table[-1]
        for name, table in now["tables"].items()
        if name in before["tables"] and len(table) > len(before["tables"][name])
    }
    blocks = list(grown.values())
    if not grown:
        return ""
    need = "need a block each" if len(grown) > 1 else "needs a block"
    return f"{listed(list(grown))} {need}: {listed(blocks)}."


def _ended(before: State, now: State, requests: Mapping[str, Request]) -> str:
    told = []
    for name in now["ended"]:
        steps = requests[name].num_output_tokens
        filed = {block for _, blocks, _ in now["tree"] for block in blocks}
        free = [
            block
            for block, entry in enumerate(now["pool"])
            if not entry and before["pool"][block][:1] == [name] and block not in filed
        ]
        told.append(f"{name} is done after {counted(steps, 'token')}.")
        if free:
            told.append(f"{listed(free, 'Block')} is free again; its full blocks stay in the tree.")
    return " ".join(told)


def _preempted(now: State) -> str:
    if not now["preempted"]:
        return ""
    return (
        f"No block is free, so {listed(now['preempted'])}, the last to come, gives up its blocks and "
        "waits. It will have to compute again what the tree does not keep."
    )
