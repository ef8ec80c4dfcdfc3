"""Arrays of others as numpy's, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Whatever numpy, the buffer protocol or DLPack can make an array of; xarray's too.
ArrayLike = Any


def as_numpy(values: ArrayLike, dtype: type = np.float32, what: str = "array", own: bool = False) -> np.ndarray:
    """Real numbers of `dtype`, row by row. No copy where memory allows, unless nobody else is to `own` it."""
    array = values
    if not isinstance(array, np.ndarray):
        try:
            array = np.asarray(values)
        except TypeError:
            # Arrays of a library that numpy may not convert on its own, but lends its memory.
            if not hasattr(values, "__dlpack__"):
                raise
            array = np.from_dlpack(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what}: expected real numbers, found {array.dtype}")
    return np.array(array, dtype=dtype, order="C") if own else np.asarray(array, dtype=dtype, order="C")


def is_xarray(values: ArrayLike) -> bool:
    """Whether it is an `xarray.DataArray`; xarray is not imported for the question."""
    return type(values).__module__.startswith("xarray.") and type(values).__name__ == "DataArray"


def like_xarray(values: np.ndarray, like: Any, name: str | None = None) -> Any:
    """`values` with the dims of `like`, and with its coords where an axis has the same length."""
    import xarray

    dims = like.dims
    same = {dim for dim, n, m in zip(dims, values.shape, like.shape) if n == m}
    coords = {key: coord for key, coord in like.coords.items() if set(coord.dims) <= same}
    return xarray.DataArray(values, dims=dims, coords=coords, name=name)


def setting(value: Any) -> str:
    """A value as the command's `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, np.integer, np.floating)):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, (list, tuple, np.ndarray)):
        items = (f'"{item}"' if isinstance(item, str) else setting(item) for item in value)
        return f"[{', '.join(items)}]"
    raise ValueError(f"settings: expected a number, a word, True, False or a list of them, found {value!r}")
