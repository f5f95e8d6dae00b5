"""How the tutor is made, the small chat model that ships with YAIE, and how it is judged.

    knowledge/   what the tutor knows: one TOML entry per term, pair of terms or whole question
    phrasings/   how people ask: question templates for training, and others held out for evaluation
    dialogues    turns both into conversations, `corpus` turns those into packed token windows
    train        trains tokenizer and model;  `evaluate` measures them and writes the model card
    hybrid       the shape of the tutor's sibling, which `train --architecture lfm2` trains
    card         writes the models' cards; `hybrid_card` is the sibling's
    retrain      trains further, chooses among the results and distils, in one go
    distill      trains what guesses at its tokens from it: a draft model, and an MTP head
    calibration  writes the conversations that `yaie quantize` calibrates with

What comes of it lies in `yaie/models/tutor`, which the engine serves without this package.
"""

from pathlib import Path

TEXTS = Path(__file__).parent
"""Has the folders `knowledge` and `phrasings`."""
