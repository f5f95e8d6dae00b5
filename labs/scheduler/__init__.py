"""Lab 6: decide what each step computes."""

from .policies import POLICIES
from .scheduler import Scheduler
from .static import StaticScheduler

__all__ = ["POLICIES", "Scheduler", "StaticScheduler"]
