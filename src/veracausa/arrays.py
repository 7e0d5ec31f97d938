"""Names for the arrays that rooms hand each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Real numbers."""
Mask = NDArray[np.bool_]
"""Yes or no, element by element; a graph is one with row = cause and column = effect."""
