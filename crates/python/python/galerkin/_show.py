"""What a notebook shows of models, datasets and runs: HTML with pictures inside."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING, Any, Iterable

import numpy as np

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._model import Model
    from ._run import Run

#: Dark blue, teal, green, yellow: lightness ascends, so that the picture reads without colours, too.
_COLOURS = np.array([[38, 24, 84], [46, 82, 138], [38, 140, 136], [104, 192, 88], [250, 226, 80]], dtype=float)


def model_card(model: Model) -> str:
    config = model.config
    count = sum(weights.size for weights in model.parameters.values())
    encoder = config.get("encoder", {})
    layers = encoder.get("layers", config.get("encoder_layers"))
    rows = [
        ("network", config["kind"]),
        ("attention", encoder.get("attention")),
        ("encoder layers", layers),
        ("parameters", f"{count:,}"),
        ("channels", f"{config['inputs']} → {config['outputs']}"),
        ("axes", ", ".join("periodic" if round_ else "closed" for round_ in config["periodic"])),
        ("native grid", " × ".join(map(str, config.get("native") or [])) or None),
    ]
    return _card(f"Model {model.path}", rows)


def dataset_card(dataset: Dataset) -> str:
    rows = [
        ("samples", len(dataset)),
        ("inputs", ", ".join(dataset.input_channels)),
        ("targets", ", ".join(dataset.target_channels)),
        ("domain", dataset.domain),
        ("targets at", dataset.target_domain if dataset.target_domain != dataset.domain else None),
        ("problem", dataset.problem["name"] if dataset.problem else None),
        ("folder", dataset.path),
    ]
    figures = ""
    if len(dataset):
        pair = zip(("input", "target"), dataset[0], (dataset.domain, dataset.target_domain))
        figures = "".join(_field(name, values[..., 0], domain) for name, values, domain in pair)
    return _card("Dataset", rows, figures)


def run_card(run: Run) -> str:
    history = run.history
    rows = [
        ("epochs", f"{len(history['epoch'])} of {run.config['train']['epochs']}"),
        ("validation error", f"{history['validation'][-1]:.4g}" if len(history["epoch"]) else None),
        ("smallest", f"{history['validation'].min():.4g}" if len(history["epoch"]) else None),
        ("optimiser", run.config["optimizer"]["kind"]),
        ("dataset", run.config["data"]["folder"]),
    ]
    curve = _curve(np.log10(history["validation"])) if len(history["epoch"]) > 1 else ""
    return _card(f"Run {run.path}", rows, _figure("validation error, logarithmic", curve) if curve else "")


def _card(title: str, rows: Iterable[tuple[str, Any]], figures: str = "") -> str:
    lines = "".join(
        f"<tr><td style='text-align:left;color:#666'>{escape(name)}</td><td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value is not None
    )
    return f"<div><b>{escape(title)}</b><table>{lines}</table><div style='display:flex;gap:12px'>{figures}</div></div>"


def _figure(title: str, picture: str) -> str:
    return f"<figure style='margin:4px'>{picture}<figcaption style='color:#666;font-size:85%'>{escape(title)}</figcaption></figure>"


def _field(name: str, values: np.ndarray, domain: Any) -> str:
    """A line for one axis, a picture for two; values at points and in space have none."""
    if not hasattr(domain, "axes") or values.ndim not in (1, 2):
        return ""
    return _figure(name, _curve(values) if values.ndim == 1 else _image(values))


def _curve(values: np.ndarray, width: int = 240, height: int = 120) -> str:
    span = float(np.ptp(values)) or 1.0
    xs = np.linspace(2, width - 2, len(values))
    ys = height - 4 - (values - values.min()) / span * (height - 8)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
    return (
        f"<svg width='{width}' height='{height}' style='background:#fff'>"
        f"<polyline points='{points}' fill='none' stroke='#2e528a' stroke-width='1.5'/></svg>"
    )


def _image(values: np.ndarray, side: int = 160) -> str:
    """The first axis from bottom to top."""
    span = float(np.ptp(values)) or 1.0
    at = (values[::-1] - values.min()) / span * (len(_COLOURS) - 1)
    low = np.minimum(at.astype(int), len(_COLOURS) - 2)
    rest = (at - low)[..., None]
    pixels = ((1 - rest) * _COLOURS[low] + rest * _COLOURS[low + 1]).round().astype(np.uint8)
    data = base64.b64encode(png(pixels)).decode()
    height = side * values.shape[0] // max(values.shape[1], 1) or side
    return f"<img width='{side}' height='{height}' style='image-rendering:pixelated' src='data:image/png;base64,{data}'/>"


def png(pixels: np.ndarray) -> bytes:
    """(rows, columns, 3) of u8 as a file."""
    rows, columns, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Every row begins with the number of its filter, 0 for none.
    lines = np.hstack([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, columns * 3)])
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
