"""The reference matcher: the slow twin of the engine, written to be believed.

It shares no code with the library and keeps no state in clever forms. Where the two differ, one of them is wrong.
"""

from .event import Event
from .heap import PriorityQueue
from .matcher import Matcher, run_case

__all__ = ["Event", "Matcher", "PriorityQueue", "run_case"]
