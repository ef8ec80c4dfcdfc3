"""Trained models."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import _galerkin, _show
from ._arrays import ArrayLike, as_numpy, is_xarray, like_xarray
from ._dataset import PathLike


def load(path: PathLike, *, best: bool = False, symmetric: bool = False, allow_nan: bool = False) -> Model:
    """The model of a run folder, or of a weight file that takes its inputs as they are.

    `best` takes the weights with the smallest validation error instead of the last ones. `symmetric` averages
    predictions over the run's k flips and transpositions, which takes 2ᵏ times as long. `allow_nan` answers inputs
    that are not finite with what comes of them; otherwise they are a `ValueError`.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the folder of a run or a weight file, found nothing")
    return Model(_galerkin.Model.load(path, best, symmetric, allow_nan), path)


class Model:
    """A trained network with all that it needs to take inputs as they are. See `galerkin.load`.

    `model(x)` predicts: `x` is `(samples, points…, channels)`, without channels if there is one alone, and without
    samples for one sample; the answer leaves out the same. Any grid that the network takes will do. An
    `xarray.DataArray` comes back as one.
    """

    def __init__(self, core: _galerkin.Model, path: Path) -> None:
        self._core = core
        #: Where it came from.
        self.path = path

    def __call__(self, inputs: ArrayLike) -> np.ndarray:
        if is_xarray(inputs):
            return like_xarray(self._core.predict(as_numpy(inputs.values, what="inputs")), inputs)
        return self._core.predict(as_numpy(inputs, what="inputs"))

    def latents(self, inputs: ArrayLike) -> dict[str, np.ndarray]:
        """What every stage gives on the way to the prediction, `(samples, points…, features)` on its own grid, by its name."""
        return dict(self._core.latents(as_numpy(inputs, what="inputs")))

    def attention(self, inputs: ArrayLike, layer: int = 0) -> np.ndarray:
        """The attention weights of an encoder layer, `(samples, heads, m, m)`: m is the number of features of a head with
        the coordinates where the attention has linear cost, and the number of points otherwise."""
        if layer < 0:
            raise ValueError(f"layer = {layer}: expected 0 or more")
        return self._core.attention(as_numpy(inputs, what="inputs"), layer)

    @cached_property
    def config(self) -> dict[str, Any]:
        """What decides what the network computes, but its weights."""
        return json.loads(self._core.config())

    @cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        """The weights, by the names and in the layouts of the paper's PyTorch code."""
        return self._core.parameters()

    def __repr__(self) -> str:
        count = sum(weights.size for weights in self.parameters.values())
        return f"Model {str(self.path)!r}: {_describe(self.config)}, {count:,} parameters"

    def _repr_html_(self) -> str:
        return _show.model_card(self)


def _describe(config: dict[str, Any]) -> str:
    kind, axes = config["kind"], len(config["periodic"])
    attention = config.get("encoder", {}).get("attention")
    name = {"fno": "Fourier neural operator", "multilevel": "multilevel network", "transformer": "transformer"}[kind]
    channels = f"{config['inputs']} → {config['outputs']} channel{'s' if config['outputs'] > 1 else ''}"
    return f"{attention.capitalize() + ' ' if attention else ''}{name}, {axes}D, {channels}"
