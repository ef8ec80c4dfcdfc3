"""Figures by matplotlib, where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._run import Run


def dataset(data: Dataset, samples: int) -> Any:
    """A row for every sample: its input beside its target."""
    import matplotlib.pyplot as plt

    count = min(samples, len(data))
    if count < 1:
        raise ValueError(f"samples = {samples}: expected 1 to {len(data)}")
    figure, axes = plt.subplots(count, 2, figsize=(7, 2.6 * count), squeeze=False, layout="constrained")
    for row, (index, pair) in zip(axes, enumerate(data[index] for index in range(count))):
        sides = (("input", data.domain, data.input_channels), ("target", data.target_domain, data.target_channels))
        for axis, values, (side, domain, names) in zip(row, pair, sides):
            _field(axis, values, domain, names, data, index)
            axis.set_title(f"{side} of sample {index}", fontsize=9)
    return figure


def _field(axis: Any, values: np.ndarray, domain: Any, names: list[str], data: Dataset, index: int) -> None:
    if not hasattr(domain, "axes"):
        points = data.points(index)["points"]
        if points.shape[1] == 1:
            axis.plot(points[:, 0], values[:, 0], ".", markersize=3)
        else:
            drawn = axis.scatter(points[:, 0], points[:, 1], c=values[:, 0], s=6)
            axis.set_aspect("equal")
            axis.figure.colorbar(drawn, ax=axis)
    elif len(domain.axes) == 1:
        (x,) = domain.axes
        for channel, name in enumerate(names):
            axis.plot(x.coordinates, values[..., channel], label=name)
        axis.set_xlabel(x.name)
        axis.legend(fontsize=8)
    else:
        # The middle of a third axis, and the first channel.
        plane = values[..., 0] if len(domain.axes) == 2 else values[:, :, values.shape[2] // 2, 0]
        y, x = domain.axes[:2]
        extent = (x.origin, x.origin + x.length, y.origin, y.origin + y.length)
        drawn = axis.imshow(plane, origin="lower", extent=extent, aspect="auto")
        axis.set_xlabel(x.name)
        axis.set_ylabel(y.name)
        axis.figure.colorbar(drawn, ax=axis)


def run(run: Run) -> Any:
    """Loss and validation error of every epoch, and the learning rate."""
    import matplotlib.pyplot as plt

    history = run.history
    if not len(history["epoch"]):
        raise ValueError(f"{run.path}: no epoch is over yet")
    figure, (errors, rates) = plt.subplots(
        2, 1, figsize=(7, 5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    errors.semilogy(history["epoch"], history["loss"], label="training loss")
    errors.semilogy(history["epoch"], history["validation"], label="validation error")
    errors.legend()
    errors.set_title(str(run.path))
    rates.plot(history["epoch"], history["lr"])
    rates.set_ylabel("learning rate")
    rates.set_xlabel("epoch")
    return figure
