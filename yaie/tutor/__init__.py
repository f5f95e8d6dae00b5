"""The tutor: the small chat model that ships with YAIE, and everything needed to retrain it.

    knowledge/   what the tutor knows: one TOML entry per term, pair of terms or whole question
    phrasings/   how people ask: question templates for training, and others held out for evaluation
    dialogues    turns both into conversations, `corpus` turns those into packed token windows
    train        trains tokenizer and model;  `evaluate` measures them and writes the model card
    weights/     the result, in Hugging Face layout
    retrain      trains further, chooses among the results and distils, in one go
    distill      trains what guesses at its tokens from it: a draft model, and an MTP head

Importing this package imports nothing heavy: the engine only needs `TUTOR_PATH`.
"""

from pathlib import Path

TUTOR_DIR = Path(__file__).parent
TUTOR_PATH = TUTOR_DIR / "weights"

__all__ = ["TUTOR_DIR", "TUTOR_PATH"]
