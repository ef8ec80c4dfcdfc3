"""Datasets: pairs of input and target, and where their values lie."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

import numpy as np

from . import _galerkin, _show
from ._arrays import ArrayLike, as_numpy, is_xarray

PathLike = Union[str, "os.PathLike[str]"]
#: One array for all samples, or one for every sample.
Places = Union[ArrayLike, Sequence[ArrayLike]]


@dataclass(frozen=True)
class Axis:
    """An axis of a uniform grid.

    A closed axis of n points has n − 1 intervals, a periodic one n: its end is its beginning.
    """

    name: str
    points: int
    origin: float = 0.0
    length: float = 1.0
    periodic: bool = False

    @property
    def coordinates(self) -> np.ndarray:
        """Where its points are.

        >>> Axis("x", 4, periodic=True).coordinates
        array([0.  , 0.25, 0.5 , 0.75])
        """
        intervals = self.points if self.periodic else max(self.points - 1, 1)
        return self.origin + self.length * np.arange(self.points) / intervals

    def __str__(self) -> str:
        end = self.origin + self.length
        kind = "periodic" if self.periodic else "closed"
        return f"{self.name}: {self.points} points from {self.origin:g} to {end:g}, {kind}"


@dataclass(frozen=True)
class Grid:
    """A uniform grid of one to three axes, in the order of the arrays."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis."""
        return tuple(axis.points for axis in self.axes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.axes))


@dataclass(frozen=True)
class Points:
    """Points anywhere. `count` is None where samples have different numbers of them."""

    coordinates: tuple[str, ...]
    count: int | None
    weights: bool
    corners: int | None

    def __str__(self) -> str:
        number = "points of a number of their own" if self.count is None else f"{self.count} points"
        extras = [word for word, there in (("weights", self.weights), ("cells", self.corners)) if there]
        return " with ".join([f"{number} ({', '.join(self.coordinates)})", *([" and ".join(extras)] if extras else [])])


class Dataset:
    """Inputs and targets of an operator, on a grid or at points.

    Arrays are `(samples, points…)` or `(samples, points…, channels)`. `axes` names the axes of the grid; it can be
    left out on a line. Axes are closed, from 0 to 1, unless `periodic`, `lengths` or `origins` say otherwise. An
    `xarray.DataArray` brings its dims and coords; its dim of samples is called `samples` or is the first.

    Values at points come with `points` `(n, dimension)` for all samples, or a list of such arrays, one for every
    sample, with `inputs` and `targets` lists of `(n_i, channels)` then. `weights` are quadrature weights `(n,)`, and
    `cells` `(cells, corners)` name the corners of lines, triangles or tetrahedra, for figures.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 64, endpoint=False)
    >>> k = np.arange(1, 21)[:, None]
    >>> data = Dataset(np.sin(2 * np.pi * k * x), np.cos(2 * np.pi * k * x), axes=("x",), periodic=("x",))
    >>> data
    Dataset of 20 samples: input → target on x: 64 points from 0 to 1, periodic
    >>> data.inputs.shape
    (20, 64, 1)
    """

    def __init__(
        self,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        axes: Sequence[str] | None = None,
        periodic: Sequence[str] = (),
        lengths: Mapping[str, float] | None = None,
        origins: Mapping[str, float] | None = None,
        input_channels: Sequence[str] | None = None,
        target_channels: Sequence[str] | None = None,
        points: Places | None = None,
        weights: Places | None = None,
        cells: Places | None = None,
    ) -> None:
        periodic = (periodic,) if isinstance(periodic, str) else tuple(periodic)
        axes = (axes,) if isinstance(axes, str) else axes
        if points is None:
            if weights is not None or cells is not None:
                raise ValueError("weights and cells: they belong to points; name those, too")
            words = {"periodic": periodic, "lengths": lengths or {}, "origins": origins or {}}
            meta, arrays = _on_grid(inputs, targets, axes, words)
        else:
            for word, given in (("axes", axes), ("periodic", periodic), ("lengths", lengths), ("origins", origins)):
                if given:
                    raise ValueError(f"{word}: a grid has them; values at points have points")
            meta, arrays = _at_points(inputs, targets, points, weights, cells)
        for side, names in (("inputs", input_channels), ("targets", target_channels)):
            found = arrays[f"{side}.npy"].shape[-1]
            if names is not None and len(names) != found:
                raise ValueError(f"names of {side}: expected {found}, found {len(names)}: {list(names)}")
            meta[side] = list(names) if names is not None else _channel_names(side[:-1], found)
        self._meta: dict[str, Any] = meta
        self._arrays: dict[str, np.ndarray] | None = arrays
        self._core: _galerkin.Dataset | None = None
        self._path: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def open(cls, path: PathLike) -> Dataset:
        """A folder that `generate`, `save` or the command `galerkin import` wrote. Samples stay on the disk until they are asked for."""
        return cls._of_folder(Path(path), None)

    @classmethod
    def _of_folder(cls, path: Path, temporary: tempfile.TemporaryDirectory[str] | None) -> Dataset:
        self = cls.__new__(cls)
        self._core = _galerkin.Dataset.open(path)
        self._meta = json.loads(self._core.meta())
        self._arrays, self._path, self._temporary = None, path, temporary
        return self

    # What it is

    def __len__(self) -> int:
        return int(self._meta["samples"])

    @property
    def path(self) -> Path | None:
        """Its folder, if it has one that stays."""
        return None if self._temporary else self._path

    @property
    def domain(self) -> Grid | Points:
        """Where inputs lie."""
        return _domain(self._meta["domain"])

    @property
    def target_domain(self) -> Grid | Points:
        """Where targets lie."""
        return _domain(self._meta.get("target_domain") or self._meta["domain"])

    @property
    def input_channels(self) -> list[str]:
        """Names of the channels of an input."""
        return list(self._meta["inputs"])

    @property
    def target_channels(self) -> list[str]:
        """Names of the channels of a target."""
        return list(self._meta["targets"])

    @property
    def problem(self) -> dict[str, Any] | None:
        """The equation behind generated samples, with its parameters."""
        return self._meta.get("problem")

    # Its values

    @cached_property
    def inputs(self) -> np.ndarray | list[np.ndarray]:
        """`(samples, points…, channels)`; a list where samples have different numbers of points."""
        return self._values("inputs", 0)

    @cached_property
    def targets(self) -> np.ndarray | list[np.ndarray]:
        """`(samples, points…, channels)`; a list where samples have different numbers of points."""
        return self._values("targets", 1)

    def _values(self, side: str, which: int) -> np.ndarray | list[np.ndarray]:
        if self._arrays is not None:
            values, offsets = self._arrays[f"{side}.npy"], self._arrays.get("offsets.npy")
            return values if offsets is None else np.split(values, offsets[1:-1].astype(int))
        if self._is_ragged:
            return [self._core.sample(index)[which] for index in range(len(self))]
        return self._core.all()[which]

    @property
    def _is_ragged(self) -> bool:
        return isinstance(self.domain, Points) and self.domain.count is None

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Input and target of a sample, `(points…, channels)`."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"sample {index}: expected {-count} to {count - 1}")
        index = index % count
        if self._core is not None and "inputs" not in self.__dict__:
            return self._core.sample(index)
        return self.inputs[index], self.targets[index]

    def points(self, index: int = 0) -> dict[str, np.ndarray]:
        """`points`, and `weights` and `cells` if there are any, of a sample whose values lie at points."""
        if not isinstance(self.domain, Points):
            raise ValueError("points: this dataset lies on a grid; .domain has its axes")
        return self._saved().points(index, False) or {}

    # Where it goes

    def save(self, path: PathLike) -> Path:
        """Writes its folder, whole or not at all, and says where. The command takes it: `galerkin train --data PATH`."""
        path = Path(path)
        core = self._write(path)
        if self.path is None:
            self._core, self._path, self._temporary = core, path, None
        return path

    def _write(self, path: Path) -> _galerkin.Dataset:
        """A folder like its own, or the first one; the dataset stays as it is."""
        if self._path is None:
            return _galerkin.Dataset.write(path, json.dumps(self._meta), list(self._arrays.items()))
        if path.exists():
            raise FileExistsError(f"{path} exists already")
        partial = path.with_name(path.name + ".importing")
        shutil.copytree(self._path, partial)
        os.rename(partial, path)
        return _galerkin.Dataset.open(path)

    def _saved(self) -> _galerkin.Dataset:
        """Its folder, in a temporary place if it has none."""
        if self._core is None:
            temporary = tempfile.TemporaryDirectory(prefix="galerkin-")
            path = Path(temporary.name) / "dataset"
            self._core, self._path, self._temporary = self._write(path), path, temporary
        return self._core

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` with a variable for every channel, and the axes as coords.

        Targets on another grid have dims of their own, `target_x` and so on.
        """
        import xarray

        if not isinstance(self.domain, Grid) or not isinstance(self.target_domain, Grid):
            raise ValueError("to_xarray: values at points have no axes")
        if self._meta.get("time"):
            raise ValueError("to_xarray: targets at several times are not taken yet")
        coords: dict[str, Any] = {}
        variables: dict[str, Any] = {}
        same = self.domain == self.target_domain
        for side, values, grid in (("input", self.inputs, self.domain), ("target", self.targets, self.target_domain)):
            prefix = "" if side == "input" or same else "target_"
            coords.update({prefix + axis.name: axis.coordinates for axis in grid.axes})
            names = self._meta[side + "s"]
            for at, name in enumerate(names):
                key = name if name not in variables and name not in coords else f"{side}_{name}"
                variables[key] = (["samples", *(prefix + axis.name for axis in grid.axes)], values[..., at])
        return xarray.Dataset(variables, coords)

    # How it is shown

    def plot(self, samples: int = 3) -> Any:
        """A `matplotlib` figure of some samples."""
        from . import _plot

        return _plot.dataset(self, samples)

    def __repr__(self) -> str:
        names = f"{', '.join(self.input_channels)} → {', '.join(self.target_channels)}"
        problem = f" of {self.problem['name']}" if self.problem else ""
        there = "" if self.target_domain == self.domain else f"; targets: {self.target_domain}"
        where = "on" if isinstance(self.domain, Grid) else "at"
        return f"Dataset of {len(self)} samples{problem}: {names} {where} {self.domain}{there}"

    def _repr_html_(self) -> str:
        return _show.dataset_card(self)


def _channel_names(one: str, count: int) -> list[str]:
    return [one] if count == 1 else [f"{one}{at}" for at in range(count)]


def _domain(meta: Mapping[str, Any]) -> Grid | Points:
    if meta["kind"] == "grid":
        return Grid(tuple(Axis(**axis) for axis in meta["axes"]))
    return Points(tuple(meta["coordinates"]), meta.get("count"), bool(meta.get("weights")), meta.get("corners"))


def _on_grid(
    inputs: ArrayLike, targets: ArrayLike, axes: Sequence[str] | None, words: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a dataset on a grid."""
    domains, arrays, names = [], {}, []
    for side, values in (("inputs", inputs), ("targets", targets)):
        names, coords, array = _named(side, values, axes, names)
        arrays[f"{side}.npy"] = _with_channels(side, array, names)
        grid = []
        for name, points in zip(names, arrays[f"{side}.npy"].shape[1:]):
            origin, length = _extent(name, coords.get(name), points, name in words["periodic"])
            origin = float(words["origins"].get(name, origin))
            length = float(words["lengths"].get(name, length))
            grid.append(
                {"name": name, "points": points, "origin": origin, "length": length, "periodic": name in words["periodic"]}
            )
        domains.append({"kind": "grid", "axes": grid})
    known = [axis["name"] for axis in domains[0]["axes"]]
    for word, given in words.items():
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"{word}: expected names of axes, {', '.join(known)}, found {', '.join(map(repr, unknown))}")
    samples = _same_samples(arrays["inputs.npy"].shape[0], arrays["targets.npy"].shape[0])
    meta = {"format": 2, "samples": samples, "version": _galerkin.__version__, "domain": domains[0], "checksums": {}}
    if domains[1] != domains[0]:
        meta["target_domain"] = domains[1]
    return meta, arrays


def _same_samples(inputs: int, targets: int) -> int:
    if inputs != targets:
        raise ValueError(f"targets: expected {inputs} samples, as inputs have, found {targets}")
    return inputs


def _named(
    side: str, values: ArrayLike, axes: Sequence[str] | None, like: list[str]
) -> tuple[list[str], dict[str, np.ndarray], np.ndarray]:
    """Names of the axes of the grid, coordinates along them where they are known, and the array with samples first.
    Dims that are those of `like` are brought to its order."""
    if is_xarray(values):
        dims = [str(dim) for dim in values.dims]
        samples = "samples" if "samples" in dims else dims[0]
        names = [dim for dim in dims if dim not in (samples, "channels")]
        names = like if sorted(names) == sorted(like) else names
        order = [samples, *names]
        if "channels" in dims:
            order.append("channels")
        coords = {dim: np.asarray(values.coords[dim], dtype=float) for dim in names if dim in values.coords}
        return names, coords, as_numpy(values.transpose(*order).values, what=side, own=True)
    array = as_numpy(values, what=side, own=True)
    if axes is not None:
        return list(axes), {}, array
    if array.ndim == 2:
        return ["x"], {}, array
    grid = "(samples, " + ", ".join("xyz"[: array.ndim - 1]) + ")"
    line = "(samples, " + ", ".join([*"xyz"[: array.ndim - 2], "channels"]) + ")"
    if array.ndim in (3, 4):
        raise ValueError(
            f"{side}: shape {array.shape} can be read as {grid} or as {line}; "
            f"say axes={tuple('xyz'[: array.ndim - 1])} or axes={tuple('xyz'[: array.ndim - 2])}"
        )
    raise ValueError(f"{side}: expected (samples, points…) or (samples, points…, channels) on one to three axes, found {array.shape}")


def _with_channels(side: str, array: np.ndarray, axes: Sequence[str]) -> np.ndarray:
    if array.ndim == len(axes) + 1:
        return array[..., None]
    if array.ndim != len(axes) + 2:
        named = ", ".join(axes)
        raise ValueError(f"{side}: expected (samples, {named}) or (samples, {named}, channels), found shape {array.shape}")
    return array


def _extent(name: str, coordinates: np.ndarray | None, points: int, periodic: bool) -> tuple[float, float]:
    """Origin and length of an axis with these coordinates."""
    if coordinates is None or points < 2:
        return 0.0, 1.0
    steps = np.diff(coordinates)
    step = (coordinates[-1] - coordinates[0]) / (points - 1)
    # Coordinates that were kept as f32 are uniform to their rounding.
    if not step > 0 or np.abs(steps - step).max() > 1e-3 * step:
        raise ValueError(f"coordinates of {name}: expected a uniform ascending grid, found steps from {steps.min():g} to {steps.max():g}; take points=…")
    return float(coordinates[0]), float(step * (points if periodic else points - 1))


def _at_points(
    inputs: Places, targets: Places, points: Places, weights: Places | None, cells: Places | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a dataset at points."""
    own = isinstance(points, (list, tuple)) and len(points) > 0 and np.ndim(points[0]) == 2
    places = [as_numpy(one, what="points") for one in (points if own else [points])]
    if any(one.ndim != 2 or not 1 <= one.shape[1] <= 3 for one in places):
        raise ValueError(f"points: expected (n, 1 to 3 coordinates), found shape {next(one.shape for one in places if one.ndim != 2 or one.shape[1] > 3)}")
    dimension = places[0].shape[1]
    arrays: dict[str, np.ndarray] = {"points.npy": np.concatenate(places)}
    counts = [len(one) for one in places]
    if own:
        arrays["offsets.npy"] = np.cumsum([0, *counts]).astype(np.float32)
    found = []
    for side, values in (("inputs", inputs), ("targets", targets)):
        if own:
            _same_samples(len(places), len(values))
            some = [_column(side, as_numpy(one, what=side), n) for one, n in zip(values, counts)]
            arrays[f"{side}.npy"] = np.concatenate(some)
            found.append(len(some))
        else:
            array = as_numpy(values, what=side, own=True)
            if array.ndim not in (2, 3) or array.shape[1] != counts[0]:
                raise ValueError(f"{side}: expected (samples, {counts[0]}) or (samples, {counts[0]}, channels), found shape {array.shape}")
            arrays[f"{side}.npy"] = array[..., None] if array.ndim == 2 else array
            found.append(len(array))
    samples = _same_samples(*found)
    domain: dict[str, Any] = {
        "kind": "points",
        "coordinates": list("xyz"[:dimension]),
        "sharing": "ragged" if own else "shared",
        "weights": weights is not None,
    }
    if not own:
        domain["count"] = counts[0]
    if weights is not None:
        some = [as_numpy(one, what="weights") for one in (weights if own else [weights])]
        if [one.shape for one in some] != [(n,) for n in counts]:
            raise ValueError(f"weights: expected one for every point, {counts[:3]}, found shapes {[one.shape for one in some[:3]]}")
        arrays["weights.npy"] = np.concatenate(some)
    if cells is not None:
        some = [as_numpy(one, what="cells") for one in (cells if own else [cells])]
        if len(some) != len(counts) or any(one.ndim != 2 or one.shape[1] != some[0].shape[1] for one in some):
            raise ValueError(f"cells: expected (cells, corners), found shapes {[one.shape for one in some[:3]]}")
        arrays["cells.npy"] = np.concatenate(some)
        domain["corners"] = some[0].shape[1]
        if own:
            arrays["cell_offsets.npy"] = np.cumsum([0, *map(len, some)]).astype(np.float32)
    meta = {"format": 2, "samples": samples, "version": _galerkin.__version__, "domain": domain, "checksums": {}}
    return meta, arrays


def _column(side: str, array: np.ndarray, n: int) -> np.ndarray:
    if array.ndim not in (1, 2) or len(array) != n:
        raise ValueError(f"{side}: expected ({n},) or ({n}, channels) at {n} points, found shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array
