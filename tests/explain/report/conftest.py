"""The models and trees of the explanations beside these tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
