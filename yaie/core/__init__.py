"""The ground floor: the nouns that every other package speaks in. It imports nothing of ours."""
