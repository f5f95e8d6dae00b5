from typing import Any


def attack_a_stop_string_in_two_pieces(part: Any) -> Any:
    """A stop string counts wherever a token cuts it in two."""
    checker = part.StopChecker(["</s>"])
    return [checker.push("yes<"), checker.push("/s>no")]
