"""Samples of problems that the library can solve."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from . import _galerkin
from ._dataset import Dataset, PathLike
from ._progress import Progress


def generate(
    problem: str,
    *,
    samples: int,
    grid: int | None = None,
    seed: int = 0,
    out: PathLike | None = None,
    progress: bool = True,
    **parameters: Any,
) -> Dataset:
    """Solves a problem for random inputs, to the bytes of the command `galerkin generate`.

    Problems are `"burgers"` and `"darcy"`. Sample i depends on `seed`, i and the parameters alone. `parameters` are
    those that `Dataset.problem` shows: `viscosity`, `time` and `tolerance` of Burgers' equation, `source` and
    `tolerance` of Darcy flow. `out` is a folder to write; one that was begun goes on. Without it the samples last as
    long as the dataset; `Dataset.save` keeps them.

    >>> data = generate("burgers", samples=4, grid=256, seed=1)
    >>> data
    Dataset of 4 samples of burgers: u0 → u on x: 256 points from 0 to 1, periodic
    """
    words = json.loads(_galerkin.problem(problem))
    if grid is not None:
        parameters["points"] = grid
    unknown = sorted(parameters.keys() - words.keys())
    if unknown:
        known = ", ".join(sorted(words.keys() - {"name", "points"}))
        raise ValueError(f"{unknown[0]}: expected parameters of {problem}, {known}, found {unknown[0]!r}")
    words.update(parameters)
    temporary = tempfile.TemporaryDirectory(prefix="galerkin-") if out is None else None
    path = Path(temporary.name) / problem if temporary else Path(out)
    with Progress(f"solving {problem}", progress) as bar:
        _galerkin.generate(json.dumps(words), samples, seed, path, lambda done: bar.count(done, samples, "samples"))
        bar.end(f"solved {samples} samples")
    return Dataset._of_folder(path, temporary)
