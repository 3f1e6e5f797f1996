"""Windows with triggers and evictors, their kernels and their operator."""

from asterism.windows.drawing import draw_trigger
from asterism.windows.triggers import BuiltIn

BuiltIn.renderer = staticmethod(draw_trigger)
