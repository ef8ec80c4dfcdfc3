"""Learn solution operators of partial differential equations, on a CPU, fast and with the same bits every time.

| name | what |
| --- | --- |
| `load`, `Model` | trained models, and what they predict |
| `Dataset`, `generate` | your own arrays, and samples of known equations |
| `train`, `resume`, `Run`, `presets` | trainings |
| `solve` | classical solvers |
| `galerkin.torch` | fused layers in PyTorch; imported by name, and needs PyTorch |
"""

from . import solve
from ._dataset import Axis, Dataset, Grid, Points
from ._galerkin import Diverged, __version__, num_threads, presets, set_num_threads
from ._generate import generate
from ._model import Model, load
from ._run import Evaluation, Run, resume, train

__all__ = [
    "Axis",
    "Dataset",
    "Diverged",
    "Evaluation",
    "Grid",
    "Model",
    "Points",
    "Run",
    "__version__",
    "generate",
    "load",
    "num_threads",
    "presets",
    "resume",
    "set_num_threads",
    "solve",
    "train",
]
