"""Trainings: a run is a folder with config, weights, log and checkpoints."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _galerkin, _show
from ._arrays import setting
from ._dataset import Dataset, PathLike
from ._model import Model, load
from ._progress import Progress

#: Told what happens in a training, in dictionaries with a key `event`: started, step, epoch, saved. It ends the training by returning False.
Callback = Callable[[dict[str, Any]], Any]


def train(
    dataset: Dataset | PathLike,
    *,
    network: str = "transformer",
    epochs: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    out: PathLike | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> Run:
    """Trains a network on a dataset, to the bytes of the command `galerkin train` with the same settings.

    `network` is `"transformer"`, `"fno"` or `"multilevel"`, proposed for the dataset, or the name of a preset (see
    `presets`). `settings` are those of a config: `{"train.augment": ["flip x"], "network.encoder.attention":
    "fourier"}`; `epochs`, `batch`, `lr` and `seed` are short for `train.epochs` and so on. `out` is a folder that is
    new or empty, `runs/NAME` if it is not named. A dataset that has no folder is saved in it.

    An interrupt (Ctrl-C, a stopped cell) leaves a checkpoint and raises `KeyboardInterrupt`; `resume` goes on from
    there, to the same bytes. A loss that is no longer a number raises `Diverged`.
    """
    words = {f"train.{key}": value for key, value in dict(epochs=epochs, batch=batch, lr=lr, seed=seed).items() if value is not None}
    twice = sorted(words.keys() & (settings or {}).keys())
    if twice:
        raise ValueError(f"{twice[0]}: said twice, as an argument and in settings")
    words.update(settings or {})
    pairs = [(key, setting(value)) for key, value in words.items()]
    if not isinstance(dataset, Dataset):
        dataset = Dataset.open(dataset)
    name = dataset.path.name if dataset.path else (dataset.problem or {}).get("name", "mine")
    out = Path("runs") / name if out is None else Path(out)
    if (out / "config.toml").exists():
        raise FileExistsError(f"{out}: a run is here already; go on with it by galerkin.resume({str(out)!r}), or name another out=…")
    folder, saved = dataset.path, None
    if folder is None:
        out.mkdir(parents=True, exist_ok=True)
        folder = saved = out / "dataset"
        dataset._write(saved)
    try:
        if network in _galerkin.presets():
            config = _galerkin.preset(network, folder, pairs)
        else:
            config = _galerkin.propose(folder, network, pairs)
        return _go_on(out, config, False, callback, progress)
    finally:
        # A run that never began leaves nothing behind.
        if saved is not None and not (out / "config.toml").exists():
            shutil.rmtree(saved, ignore_errors=True)
            if not any(out.iterdir()):
                out.rmdir()


def resume(path: PathLike, *, callback: Callback | None = None, progress: bool = True) -> Run:
    """Goes on with a run that was interrupted, to the bytes that it would have ended with. A run that is over is left as it is."""
    path = Path(path)
    config, _ = _galerkin.run_config(path)
    return _go_on(path, config, True, callback, progress)


def _go_on(out: Path, config: str, again: bool, callback: Callback | None, progress: bool) -> Run:
    with Progress(f"training {out}", progress) as bar:

        def hear(event: dict[str, Any]) -> bool:
            bar.hear(event)
            return callback is None or callback(event) is not False

        stopped = f"stopped; galerkin.resume({str(out)!r}) goes on"
        try:
            finished = _galerkin.train(config, out, again, hear)
        except KeyboardInterrupt:
            bar.end(stopped)
            raise
        run = Run(out)
        bar.end(str(run) if finished else stopped)
    return run


@dataclass(frozen=True)
class Evaluation:
    """Errors of a run on one grid with one level of noise."""

    #: Points along each axis of the inputs.
    points: tuple[int, ...]
    #: On the inputs, relative to their deviation.
    noise: float
    #: How many samples.
    samples: int
    #: Mean of ‖p − u‖/‖u‖ over the samples.
    relative_l2: float
    #: The largest of them.
    largest: float
    #: The mean error of the classical solver on the same points, where the problem is known.
    solver: float | None
    #: Relative L² errors of all samples.
    per_sample: np.ndarray = field(repr=False)
    #: Everything the library says of it.
    details: dict[str, Any] = field(repr=False)


class Run:
    """The folder of a training. `train` and `resume` give one; `Run(path)` opens one."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self._toml, text = _galerkin.run_config(self.path)
        #: What it was told.
        self.config: dict[str, Any] = json.loads(text)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Of every epoch: `epoch`, `step`, `loss`, `lr`, and `validation`, the mean relative L² error on the validation samples."""
        epochs = json.loads(_galerkin.history(self.path))["epochs"]
        return {key: np.array([epoch[key] for epoch in epochs]) for key in ("epoch", "step", "loss", "lr", "validation")}

    @property
    def finished(self) -> bool:
        """Whether all of its epochs are over."""
        return len(self.history["epoch"]) >= self.config["train"]["epochs"]

    @property
    def model(self) -> Model:
        """The model with the weights of the last checkpoint or of the end."""
        return load(self.path)

    @property
    def best(self) -> Model:
        """The model with the weights that have the smallest error on the validation samples."""
        return load(self.path, best=True)

    @property
    def dataset(self) -> Dataset:
        """What it was trained on."""
        return Dataset.open(self.config["data"]["folder"])

    def evaluate(
        self,
        grid: int | Sequence[int] | None = None,
        *,
        data: Dataset | PathLike | None = None,
        noise: float | Sequence[float] | None = None,
        best: bool = False,
        symmetric: bool = False,
        include_training: bool = False,
    ) -> list[Evaluation]:
        """Errors on samples that it has not seen, on each of these grids with each of these levels of noise.

        A grid is named by the points along its first axis, and takes every so many points of the dataset's. They are
        also kept in the run's `metrics.json`.
        """
        folder = data
        if isinstance(data, Dataset):
            data._saved()
            folder = data._path
        grids = [] if grid is None else [int(one) for one in np.atleast_1d(grid)]
        noises = [] if noise is None else [float(one) for one in np.atleast_1d(noise)]
        text = _galerkin.evaluate(self.path, folder, grids, noises, best, symmetric, include_training)
        return [_evaluation(details) for details in json.loads(text)["evaluations"]]

    def plot(self) -> Any:
        """A `matplotlib` figure of the losses and errors of all epochs."""
        from . import _plot

        return _plot.run(self)

    def __repr__(self) -> str:
        history, epochs = self.history, self.config["train"]["epochs"]
        done = len(history["epoch"])
        error = f", validation error {history['validation'][-1]:.3g}" if done else ""
        return f"Run {str(self.path)!r}: {done} of {epochs} epochs{error}"

    def _repr_html_(self) -> str:
        return _show.run_card(self)


def _evaluation(details: dict[str, Any]) -> Evaluation:
    error, solver = details["relative_l2"], details.get("solver")
    return Evaluation(
        points=tuple(details["points"]),
        noise=details["noise"],
        samples=details["samples"],
        relative_l2=error["mean"],
        largest=error["max"],
        solver=solver["relative_l2"]["mean"] if solver else None,
        per_sample=np.array(details["per_sample"], dtype=float),
        details=details,
    )
