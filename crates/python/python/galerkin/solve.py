"""The classical solvers behind generated datasets.

They are the baseline of every network that was trained on their solutions.
"""

from __future__ import annotations

import math

import numpy as np

from . import _galerkin
from ._arrays import ArrayLike, as_numpy


def burgers(
    u0: ArrayLike, *, viscosity: float = 0.1 / (2 * math.pi), time: float = 1.0, points: int | None = None, tolerance: float = 1e-8
) -> np.ndarray:
    """u(x, time) of Burgers' equation u_t + u u_x = ν u_xx on the circle of length 1, from u(x, 0).

    `u0` is `(n,)` or `(samples, n)`, at j/n; the solution is at `points` points, as many as `u0` has unless another
    number is said. Values are of f64, with a relative error below `tolerance`.

    >>> import numpy as np
    >>> u0 = np.sin(2 * np.pi * np.arange(128) / 128)
    >>> u1 = burgers(u0, viscosity=0.05, time=0.5)
    >>> u1.shape, bool(abs(u1).max() < abs(u0).max())
    ((128,), True)
    """
    array = as_numpy(u0, np.float64, "u0")
    if array.ndim not in (1, 2):
        raise ValueError(f"u0: expected shape (n,) or (samples, n), found {array.shape}")
    rows = array[None] if array.ndim == 1 else array
    solved = _galerkin.solve_burgers(rows, viscosity, time, rows.shape[1] if points is None else points, tolerance)
    return solved[0] if array.ndim == 1 else solved


def darcy(a: ArrayLike, f: ArrayLike = 1.0, *, tolerance: float = 1e-10) -> np.ndarray:
    """u of −∇·(a∇u) = f on the unit square with u = 0 on its boundary.

    `a` is `(n, n)` or `(samples, n, n)`, at the vertices; `f` is a number or an array of the shape of `a`. Second-order
    differences, solved until the residual is below `tolerance`.

    >>> import numpy as np
    >>> u = darcy(np.ones((41, 41)))
    >>> round(float(u[20, 20]), 3)
    0.074
    """
    array = as_numpy(a, np.float64, "a")
    if array.ndim not in (2, 3):
        raise ValueError(f"a: expected shape (n, n) or (samples, n, n), found {array.shape}")
    source = as_numpy(f, np.float64, "f")
    if source.ndim > 0 and source.shape != array.shape:
        raise ValueError(f"f: expected a number or shape {array.shape}, as a has, found {source.shape}")
    source = np.ascontiguousarray(np.broadcast_to(source, array.shape))
    one = array.ndim == 2
    solved = _galerkin.solve_darcy(array[None] if one else array, source[None] if one else source, tolerance)
    return solved[0] if one else solved
