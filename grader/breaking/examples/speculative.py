from typing import Any


def attack_a_wrong_draft(part: Any) -> Any:
    """The second of two drafts is wrong: what was sampled in its place is gained as well."""
    return part.accepted([5, 6], [5, 7, 8])
