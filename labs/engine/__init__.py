"""Lab 7: the step loop, and text out of tokens."""

from .core import EngineCore
from .detokenizer import Detokenizer
from .stop_checker import StopChecker

__all__ = ["Detokenizer", "EngineCore", "StopChecker"]
