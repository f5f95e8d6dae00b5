"""Lab 18: drafts of the next tokens, and their verification."""

from .acceptance import accepted
from .ngrams import NgramIndex
from .places import DraftPlaces
from .rejection import rejection_sample, residual
from .taking_back import kept, masks_ahead
from .worth import Acceptance, most_worth

__all__ = [
    "Acceptance",
    "DraftPlaces",
    "NgramIndex",
    "accepted",
    "kept",
    "masks_ahead",
    "most_worth",
    "rejection_sample",
    "residual",
]
