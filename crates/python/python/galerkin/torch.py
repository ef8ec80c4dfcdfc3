"""Fused layers and networks for PyTorch.

The modules of this module compute what modules made of PyTorch's own operations compute, and their parameters
have the names of the paper's code: its state dicts load. On the processor and in float32 a forward pass is
one call of compiled code, and so is the backward pass; a stack of layers or a whole network is one call too.

>>> import torch, galerkin.torch
>>> _ = torch.manual_seed(0)
>>> layer = galerkin.torch.EncoderLayer(16, heads=2)
>>> x, coordinates = torch.randn(4, 100, 16), torch.linspace(0, 1, 100).view(1, 100, 1)
>>> y = layer(x, coordinates)
>>> y.sum().backward()
>>> y.shape, layer.attn.fc.weight.grad.shape
(torch.Size([4, 100, 16]), torch.Size([16, 18]))

What is fused and what is not:

- On another device, with another type of numbers, under autocast, while a trace is recorded, with a subclass
  of tensors, and if the gradient of coordinates or quadrature weights is wanted, the same is computed by
  PyTorch's operations. So code moves to a graphics card as it is. `module.fused = False` asks for that
  everywhere.
- Second derivatives (`create_graph=True`), forward-mode derivatives and transforms such as `torch.func.vmap`
  need `fused = False` too; a fused module raises a `RuntimeError` there.
- `torch.compile` leaves a fused module out of its graph.
- Dropout draws its masks from PyTorch's generator either way, so `torch.manual_seed` repeats a training. The
  masks of the two ways differ.
- Parts of a fused module, such as `layer.attn` in an `EncoderLayer`, hold parameters. Their own `forward`,
  and hooks on them, are not called.
- Whatever is computed runs on `galerkin.num_threads()` threads, not on PyTorch's. See `cooperate`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _galerkin

__all__ = [
    "Encoder",
    "EncoderLayer",
    "Fno",
    "FourierAttention",
    "GalerkinAttention",
    "SpectralConv1d",
    "SpectralConv2d",
    "Transformer1d",
    "Transformer2d",
    "attention",
    "cooperate",
    "encoder_layer",
    "from_run",
]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
}
KINDS = ("galerkin", "fourier", "linear", "softmax")
NORMS = ("layer", "instance", "none")

Config = Mapping[str, Any]
Parameters = Mapping[str, Tensor]


# --- one call: compiled, or composed of PyTorch's operations ------------------------------------------------


class _Signature(NamedTuple):
    """Names and shapes of parameters, in their order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=256)
def _part(kind: str, config: str) -> Any:
    """A layer or network as the compiled half knows it."""
    return _galerkin.Fused(kind, config)


def _signature(kind: str, config: Any) -> _Signature:
    """An error if the config makes no sense."""
    names, shapes = zip(*_part(kind, json.dumps(config)).names())
    return _Signature(names, tuple(tuple(shape) for shape in shapes))


def _run(
    part: Any,
    seed: int | None,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    parameters: Sequence[Tensor],
    track: bool,
    x_wanted: bool,
) -> tuple[Tensor, Any]:
    constants = [None if t is None else _array(t) for t in (coordinates, weights)]
    y, tape = part.forward(_array(x), [_array(p) for p in parameters], *constants, seed, track, x_wanted)
    return torch.from_numpy(y), tape


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().resolve_neg().contiguous().numpy()


class _Fused(torch.autograd.Function):
    """`apply(part, seed, track, x, coordinates, weights, *parameters)`"""

    @staticmethod
    def forward(ctx, part, seed, track, x, coordinates, weights, *parameters):
        ctx.part, ctx.seed = part, seed
        y, ctx.tape = _run(part, seed, x, coordinates, weights, parameters, track, ctx.needs_input_grad[3])
        if track:
            ctx.save_for_backward(x, coordinates, weights, *parameters)
        return y

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a fused layer of galerkin.torch has no second derivatives: set fused = False"
                ", or leave out create_graph=True"
            )
        dy = _array(dy)
        found = ctx.tape.backward(dy)
        if found is None:
            # The graph was retained and is gone through again: the same forward pass once more, with the same
            # masks.
            x, coordinates, weights, *parameters = ctx.saved_tensors
            wanted = ctx.needs_input_grad[3]
            _, tape = _run(ctx.part, ctx.seed, x, coordinates, weights, parameters, True, wanted)
            found = tape.backward(dy)
        dx, gradients = found
        wanted = ctx.needs_input_grad[6:]
        gradients = [torch.from_numpy(g) if wanted else None for g, wanted in zip(gradients, wanted)]
        return (None, None, None, None if dx is None else torch.from_numpy(dx), None, None, *gradients)

    @staticmethod
    def jvp(ctx, *tangents):
        raise RuntimeError(
            "a fused layer of galerkin.torch has no forward-mode derivatives: set fused = False"
        )


def _apply(
    kind: str,
    config: Any,
    signature: _Signature,
    parameters: Sequence[Tensor],
    x: Tensor,
    coordinates: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    fused: bool,
    training: bool,
) -> Tensor:
    """A part of a kind and config with parameters in its order, of inputs whose sizes have been checked."""
    for name, shape, parameter in zip(signature.names, signature.shapes, parameters):
        if parameter.shape != shape:
            raise _expected(name, f"shape {shape}", tuple(parameter.shape))
    constants = [t for t in (coordinates, weights) if t is not None]
    if fused and _fusable([x, *parameters], constants):
        return _fused(kind, config, training, x, coordinates, weights, parameters)
    return _COMPOSED[kind](config, dict(zip(signature.names, parameters)), x, coordinates, weights, training)


def _fused(*arguments: Any) -> Tensor:
    # `torch.compile` breaks its graph here, and compiles nothing within. The compiler takes a second to
    # import, so it is asked only where it is there already.
    dynamo = sys.modules.get("torch._dynamo")
    return (_computed if dynamo is None else dynamo.disable(_computed))(*arguments)


_fused._torchdynamo_disable = True


def _computed(
    kind: str,
    config: Any,
    training: bool,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    parameters: Sequence[Tensor],
) -> Tensor:
    if getattr(torch._C, "_are_functorch_transforms_active", bool)():
        raise RuntimeError(
            "a fused layer of galerkin.torch does not go through transforms of torch.func: set fused = False"
        )
    text = json.dumps(config)
    seed = int(torch.randint(2**63 - 1, ())) if training and _drops(text) else None
    track = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *parameters))
    return _Fused.apply(_part(kind, text), seed, track, x, coordinates, weights, *parameters)


def _fusable(tensors: Sequence[Tensor], constants: Sequence[Tensor]) -> bool:
    plain = all(
        t.device.type == "cpu"
        and t.dtype == torch.float32
        and t.layout == torch.strided
        and type(t) in (Tensor, nn.Parameter)
        for t in (*tensors, *constants)
    )
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in constants)
    return plain and not wanted and not _autocast() and not torch.jit.is_tracing()


def _autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:
        return torch.is_autocast_cpu_enabled()


@functools.lru_cache(maxsize=256)
def _drops(config: str) -> bool:
    """Whether any rate of dropout is above zero."""

    def rates(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from [inner] if key.endswith("dropout") else rates(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from rates(inner)

    return any(rate > 0 for rate in rates(json.loads(config)))


def _expected(what: str, expected: object, found: object) -> ValueError:
    return ValueError(f"{what}: expected {expected}, found {found}")


# --- the same, composed -------------------------------------------------------------------------------------


def _linear(p: Parameters, at: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f"{at}.weight"], p[f"{at}.bias"])


def _head_norm(config: Config, p: Parameters, at: str, x: Tensor) -> Tensor:
    """Of x (B, n, H, e), over features or over points."""
    heads = config["heads"]
    gamma = torch.stack([p[f"{at}.{h}.weight"] for h in range(heads)])
    beta = torch.stack([p[f"{at}.{h}.bias"] for h in range(heads)])
    if config["norm"] == "layer":
        if heads == 1:
            return F.layer_norm(x, x.shape[-1:], gamma[0], beta[0], config["eps"])
        return torch.addcmul(beta, F.layer_norm(x, x.shape[-1:], eps=config["eps"]), gamma)
    centred = x - x.mean(1, keepdim=True)
    variance = (centred * centred).mean(1, keepdim=True)
    return torch.addcmul(beta, centred * torch.rsqrt(variance + config["eps"]), gamma)


def _attention(
    config: Config,
    p: Parameters,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    training: bool,
    at: str = "",
) -> Tensor:
    kind, heads, n = config["kind"], config["heads"], x.shape[1]
    normed = "" if config["norm"] == "none" else "KV" if kind in ("galerkin", "linear") else "QK"

    def project(i: int, name: str) -> Tensor:
        y = _linear(p, f"{at}linears.{i}", x).unflatten(-1, (heads, -1))
        if name in normed:
            y = _head_norm(config, p, f"{at}norm_{name}", y)
        y = y.transpose(1, 2)
        if coordinates is None:
            return y
        return torch.cat([coordinates.unsqueeze(1).expand(-1, heads, -1, -1), y], dim=-1)

    def drop(t: Tensor) -> Tensor:
        return F.dropout(t, config["dropout"], training)

    q, k, v = project(0, "Q"), project(1, "K"), project(2, "V")
    scale = 1 / math.sqrt(q.shape[-1])
    # The measure of a point is 1/n, or its quadrature weight.
    columns = None if weights is None else weights[:, None, None, :]
    weighed = v if weights is None else v * weights[:, None, :, None]
    share = 1 / n if weights is None else 1.0
    if kind in ("galerkin", "linear"):
        if kind == "linear":
            q, k = q.softmax(-1), k.softmax(-2)
        y = q @ drop((k.transpose(-2, -1) @ weighed) * share)
    elif kind == "fourier" and not (training and config["dropout"]):
        y = q @ ((k.transpose(-2, -1) @ weighed) * (share * scale))
    elif kind == "fourier":
        scores = (q * (share * scale)) @ k.transpose(-2, -1)
        y = drop(scores if columns is None else scores * columns) @ v
    else:
        scores = (q * scale) @ k.transpose(-2, -1)
        y = drop((scores if columns is None else scores + columns.log()).softmax(-1)) @ v
    y = y.transpose(1, 2).flatten(2)
    return y if coordinates is None else _linear(p, f"{at}fc", y)


def _encoder_layer(
    config: Config,
    p: Parameters,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    training: bool,
    at: str,
) -> Tensor:
    def drop(t: Tensor) -> Tensor:
        return F.dropout(t, config["residual_dropout"], training)

    def norm(t: Tensor, name: str) -> Tensor:
        if not config["norm_after"]:
            return t
        return F.layer_norm(t, t.shape[-1:], p[f"{at}{name}.weight"], p[f"{at}{name}.bias"], config["eps"])

    attended = drop(_attention(config["attention"], p, x, coordinates, weights, training, f"{at}attn."))
    x = norm(x - attended if config["minus"] else x + attended, "layer_norm1")
    hidden = ACTIVATIONS[config["activation"]](_linear(p, f"{at}ff.lr1", x))
    hidden = F.dropout(hidden, config["hidden_dropout"], training)
    return norm(x + drop(_linear(p, f"{at}ff.lr2", hidden)), "layer_norm2")


def _encoder(
    config: Sequence[Config],
    p: Parameters,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    training: bool,
    at: str = "",
) -> Tensor:
    for i, layer in enumerate(config):
        x = _encoder_layer(layer, p, x, coordinates, weights, training, f"{at}{i}.")
    return x


def _spectral(
    config: Config,
    p: Parameters,
    x: Tensor,
    coordinates: Tensor | None = None,
    weights: Tensor | None = None,
    training: bool = False,
    at: str = "",
) -> Tensor:
    """Of x (B, n, i) or (B, n1, n2, i)."""
    m, dropped = config["modes"], F.dropout(x, config["dropout"], training)
    if config["axes"] == 1:
        spectrum = torch.fft.rfft(dropped, dim=1, norm="ortho")[:, :m]
        matrices = torch.view_as_complex(p[f"{at}fourier_weight"])
        # Modes that are not there are zeros to irfft.
        z = torch.fft.irfft(
            torch.einsum("bki,iok->bko", spectrum, matrices), n=x.shape[1], dim=1, norm="ortho"
        )
    else:
        n1, n2 = x.shape[1:3]
        spectrum = torch.fft.fft(torch.fft.rfft(dropped, dim=2, norm="ortho")[:, :, :m], dim=1, norm="ortho")
        low, high = (torch.view_as_complex(p[f"{at}fourier_weight.{block}"]) for block in (0, 1))
        # Where rows of positive and negative frequencies meet, those of negative ones count.
        product = torch.cat(
            [
                torch.einsum("bkli,iokl->bklo", spectrum[:, : min(m, n1 - m)], low[:, :, : n1 - m]),
                spectrum.new_zeros(x.shape[0], max(n1 - 2 * m, 0), m, config["outputs"]),
                torch.einsum("bkli,iokl->bklo", spectrum[:, n1 - m :], high),
            ],
            dim=1,
        )
        z = torch.fft.irfft(torch.fft.ifft(product, dim=1, norm="ortho"), n=n2, dim=2, norm="ortho")
    return ACTIVATIONS[config["activation"]](z + _linear(p, f"{at}linear", x))


def _spectral_decoder(
    config: Config,
    p: Parameters,
    x: Tensor,
    at_points: Tensor,
    periodic: Sequence[bool],
    training: bool,
    at: str,
) -> Tensor:
    """Of x (B, points…, features)."""
    grid = x.shape[1:-1]
    if config["coordinates"]:
        x = _linear(p, f"{at}fc", torch.cat([x, at_points.expand(*x.shape[:-1], -1)], dim=-1))
    more = [
        0 if closed else math.floor(config["padding"] * (n - 1) + 0.5) for n, closed in zip(grid, periodic)
    ]
    if any(more):
        x = F.pad(x, [0, 0] + [count for after in reversed(more) for count in (0, after)])
    for i in range(config["layers"]):
        acts = i + 1 < config["layers"] or config["last_activation"]
        layer = {
            "axes": len(grid),
            "outputs": config["channels"],
            "modes": config["modes"],
            "activation": config["activation"] if acts else "none",
            "dropout": config["dropout"],
        }
        x = _spectral(layer, p, x, training=training, at=f"{at}spectral_conv.{i}.")
    if any(more):
        x = x[tuple(slice(None if axis == 0 else grid[axis - 1]) for axis in range(len(grid) + 1))]
    hidden = ACTIVATIONS[config["activation"]](_linear(p, f"{at}regressor.0", x))
    return _linear(p, f"{at}regressor.2", hidden)


def _pointwise_decoder(
    config: Config, p: Parameters, x: Tensor, at_points: Tensor, training: bool, at: str
) -> Tensor:
    if config["coordinates"]:
        x = _linear(p, f"{at}fc", torch.cat([x, at_points.expand(*x.shape[:-1], -1)], dim=-1))
    for i in range(config["layers"]):
        x = F.dropout(
            ACTIVATIONS[config["activation"]](_linear(p, f"{at}ff.{i}.0", x)), config["dropout"], training
        )
    return _linear(p, f"{at}out", x)


def _convolution(
    p: Parameters, at: str, x: Tensor, activation: str, dropout: float, training: bool
) -> Tensor:
    return ACTIVATIONS[activation](
        F.dropout(F.conv2d(x, p[f"{at}.conv.0.weight"], padding=1), dropout, training)
    )


def _resize(x: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinear, corners on corners; (B, c, n1, n2)."""
    if tuple(x.shape[2:]) == tuple(size):
        return x
    return F.interpolate(x, size=tuple(size), mode="bilinear", align_corners=True)


def _points(grid: Sequence[int], periodic: Sequence[bool], like: Tensor) -> Tensor:
    """Coordinates (1, points…, axes); the first one varies along the last axis."""
    lines = []
    for n, round_ in zip(grid, periodic):
        intervals = n if round_ else max(n - 1, 1)
        lines.append(torch.arange(n, dtype=torch.float64, device="cpu") / intervals)
    points = torch.stack(list(reversed(torch.meshgrid(*lines, indexing="ij"))), dim=-1)
    return points.to(dtype=like.dtype).to(device=like.device).unsqueeze(0)


def _transformer(config: Config, p: Parameters, x: Tensor, training: bool) -> Tensor:
    """Of x (B, points…, inputs); neither normaliser nor boundary are applied."""
    grid, lift, encoder, decoder = tuple(x.shape[1:-1]), config["lift"], config["encoder"], config["decoder"]
    periodic = [False] * len(grid) if config["closed_coordinates"] else config["periodic"]
    output, sizes = _grids(json.dumps(config), grid)
    coarse = grid
    if sizes is None:
        at_points = _points(grid, periodic, x)
        if lift["coordinates"]:
            x = torch.cat([x, at_points.expand(*x.shape[:-1], -1)], dim=-1)
        x = _linear(p, "feat_extract.id", x)
    else:
        act, dropout = lift["activation"], lift["dropout"]

        def convolve(i: int, t: Tensor) -> Tensor:
            return _convolution(p, f"downscaler.downsample.conv{i}", t, act, dropout, training)

        x = ACTIVATIONS[act](_resize(convolve(0, x.permute(0, 3, 1, 2)), sizes[0]))
        first = convolve(1, x)
        second = convolve(2, first)
        x = torch.cat([first, second, convolve(3, second)], dim=1)
        x = ACTIVATIONS[act](_resize(x, sizes[1])).permute(0, 2, 3, 1)
        coarse = tuple(sizes[1])
        at_points = _points(coarse, periodic, x)
    x = F.dropout(x.flatten(1, -2), config["dropout"], training)
    at = at_points.flatten(1, -2).expand(x.shape[0], -1, -1)
    x = _encoder([_layer_of(config)] * encoder["layers"], p, x, at, None, training, "encoder_layers.")
    x = x.unflatten(1, coarse)
    if sizes is not None:
        act, dropout = lift["up_activation"], lift["up_dropout"]
        x = _resize(x.permute(0, 3, 1, 2), sizes[2])
        x = _convolution(p, "upscaler.upsample.conv.0", x, act, dropout, training)
        x = _resize(ACTIVATIONS[act](F.dropout(x, dropout, training)), sizes[3]).permute(0, 2, 3, 1)
        at_points = _points(output, periodic, x)
    x = F.dropout(x, config["dropout"], training)
    if decoder["kind"] == "spectral":
        return _spectral_decoder(decoder, p, x, at_points, config["periodic"], training, "regressor.")
    return _pointwise_decoder(decoder, p, x, at_points, training, "regressor.")


def _network(
    config: Config,
    p: Parameters,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    training: bool,
) -> Tensor:
    if config["kind"] == "transformer":
        return _transformer(config, p, x, training)
    at_points = _points(x.shape[1:-1], config["periodic"], x)
    return _spectral_decoder(config["spectral"], p, x, at_points, config["periodic"], training, "")


_COMPOSED: dict[str, Callable[..., Tensor]] = {
    "attention": _attention,
    "encoder": _encoder,
    "spectral": _spectral,
    "network": _network,
}


@functools.lru_cache(maxsize=256)
def _grids(config: str, grid: tuple[int, ...]) -> tuple[list[int], list[list[int]] | None]:
    """The grid of an output and the sizes of an interpolation network."""
    return _galerkin.grids(config, list(grid))


# --- functions ----------------------------------------------------------------------------------------------


def attention(
    x: Tensor,
    parameters: Parameters,
    coordinates: Tensor | None = None,
    *,
    kind: str = "galerkin",
    heads: int = 1,
    norm: str = "layer",
    eps: float = 1e-5,
    dropout: float = 0.0,
    weights: Tensor | None = None,
    fused: bool = True,
) -> Tensor:
    """Attention of x (B, n, features), with parameters by their names in the paper's code: `linears.0.weight`
    and so on.

    `kind` is galerkin, fourier, linear or softmax. `coordinates` (B, n, p), (1, n, p) or (n, p) stand in
    front of the features of every head, and then there is an output projection `fc`. `weights` (B, n) or (n)
    are quadrature weights in place of 1/n. `norm` inside the heads is layer, instance or none. `dropout` acts
    on the attention weights; in an evaluation it is to be 0.

    >>> module = GalerkinAttention(8, heads=2, coordinates=0)
    >>> x = torch.randn(2, 10, 8)
    >>> torch.equal(attention(x, dict(module.named_parameters()), heads=2), module(x))
    True
    """
    p = 0 if coordinates is None else coordinates.shape[-1]
    d = _features(parameters, "linears.0.weight")
    config = _attention_config(kind, d, heads, p, norm, eps, dropout)
    return _attend(
        "attention", config, config, parameters, x, coordinates, weights, fused=fused, training=dropout > 0
    )


def encoder_layer(
    x: Tensor,
    parameters: Parameters,
    coordinates: Tensor | None = None,
    *,
    attention: str = "galerkin",
    heads: int = 1,
    activation: str = "relu",
    norm: str = "layer",
    eps: float = 1e-5,
    dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    minus: bool = False,
    weights: Tensor | None = None,
    fused: bool = True,
) -> Tensor:
    """An encoder layer of x (B, n, features), with parameters by their names in the paper's code:
    `attn.linears.0.weight`, `ff.lr1.weight` and so on. Layer norms follow the residuals if there are
    parameters for them. For the words see `EncoderLayer` and `attention`.

    >>> module = EncoderLayer(8, coordinates=0)
    >>> x = torch.randn(2, 10, 8)
    >>> torch.equal(encoder_layer(x, dict(module.named_parameters())), module(x))
    True
    """
    p = 0 if coordinates is None else coordinates.shape[-1]
    d, hidden = (_features(parameters, name) for name in ("attn.linears.0.weight", "ff.lr1.weight"))
    inner = _attention_config(attention, d, heads, p, norm, eps, attention_dropout)
    after = "layer_norm1.weight" in parameters
    config = _layer_config(inner, hidden, activation, after, eps, minus, dropout, hidden_dropout)
    training = max(dropout, hidden_dropout, attention_dropout) > 0
    parameters = {f"0.{name}": value for name, value in parameters.items()}
    return _attend(
        "encoder", [config], inner, parameters, x, coordinates, weights, fused=fused, training=training
    )


def _features(parameters: Parameters, name: str) -> int:
    if name not in parameters:
        raise _expected("parameters", f"{name} and others", ", ".join(parameters) or "none")
    return parameters[name].shape[0]


def _attend(
    kind: str,
    config: Any,
    inner: Config,
    parameters: Parameters,
    x: Tensor,
    coordinates: Tensor | None,
    weights: Tensor | None,
    *,
    fused: bool,
    training: bool,
) -> Tensor:
    """Attention or encoder layers, of inputs whose sizes are not known to fit."""
    signature = _signature(kind, config)
    names = signature.names
    missing, extra = [name for name in names if name not in parameters], parameters.keys() - set(names)
    if missing or extra:
        missing, extra = (", ".join(names) or "none" for names in (missing, sorted(extra)))
        raise ValueError(f"parameters: missing {missing}; not known {extra}")
    coordinates, weights = _attention_inputs(inner, x, coordinates, weights)
    values = [parameters[name] for name in names]
    return _apply(kind, config, signature, values, x, coordinates, weights, fused=fused, training=training)


def _attention_inputs(
    config: Config, x: Tensor, coordinates: Tensor | None, weights: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Coordinates (B, n, p) and quadrature weights (B, n) for x (B, n, features)."""
    d, p = config["features"], config["coordinates"]
    if x.dim() != 3 or x.shape[-1] != d or x.numel() == 0:
        raise _expected("x", f"shape (batch, points, {d}), with something in it", tuple(x.shape))
    batch, n, _ = x.shape
    if p == 0 and coordinates is not None:
        raise _expected("coordinates", "none, as the layer has coordinates=0", tuple(coordinates.shape))
    if p > 0:
        if coordinates is None:
            raise _expected("coordinates", f"shape ({batch}, {n}, {p})", "none")
        shape = tuple(coordinates.shape)
        if shape not in ((batch, n, p), (1, n, p), (n, p)):
            raise _expected("coordinates", f"shape ({batch}, {n}, {p}), (1, {n}, {p}) or ({n}, {p})", shape)
        coordinates = coordinates.expand(batch, n, p)
    if weights is not None:
        shape = tuple(weights.shape)
        if shape not in ((batch, n), (1, n), (n,)):
            raise _expected("weights", f"shape ({batch}, {n}), (1, {n}) or ({n},)", shape)
        weights = weights.expand(batch, n)
    return coordinates, weights


# --- configs ------------------------------------------------------------------------------------------------


def _attention_config(
    kind: str, features: int, heads: int, coordinates: int, norm: str, eps: float, dropout: float
) -> dict[str, Any]:
    if kind not in KINDS:
        raise _expected("attention", " | ".join(KINDS), repr(kind))
    if norm not in NORMS:
        raise _expected("norm", " | ".join(NORMS), repr(norm))
    for name, size, least in (
        ("features", features, 1),
        ("heads", heads, 1),
        ("coordinates", coordinates, 0),
    ):
        if not isinstance(size, int) or size < least:
            raise _expected(name, f"{least} or more", repr(size))
    # Gain and diagonal are of initial weights, which are drawn here.
    return {
        "kind": kind,
        "features": features,
        "heads": heads,
        "coordinates": coordinates,
        "norm": norm,
        "eps": eps,
        "dropout": dropout,
        "gain": 0.0,
        "diagonal": 0.0,
    }


def _layer_config(
    attention: Config,
    hidden: int,
    activation: str,
    norm_after: bool,
    eps: float,
    minus: bool,
    residual_dropout: float,
    hidden_dropout: float,
) -> dict[str, Any]:
    if activation not in ACTIVATIONS:
        raise _expected("activation", " | ".join(ACTIVATIONS), repr(activation))
    return {
        "attention": attention,
        "hidden": hidden,
        "activation": activation,
        "norm_after": norm_after,
        "eps": eps,
        "minus": minus,
        "residual_dropout": residual_dropout,
        "hidden_dropout": hidden_dropout,
    }


def _layer_of(config: Config) -> dict[str, Any]:
    """Every encoder layer of a transformer."""
    e, axes = config["encoder"], len(config["periodic"])
    attention = _attention_config(
        e["attention"], e["width"], e["heads"], axes, e["head_norm"], e["eps"], e["attention_dropout"]
    )
    return _layer_config(
        attention,
        e["hidden"],
        e["activation"],
        e["residual_norm"],
        e["eps"],
        e["minus"],
        e["residual_dropout"],
        e["hidden_dropout"],
    )


# --- modules ------------------------------------------------------------------------------------------------


class _Affine(nn.Module):
    """γ and β of a norm."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def extra_repr(self) -> str:
        return str(self.weight.numel())


class _Module(nn.Module):
    """A module that is one call. `config` says what it computes."""

    #: Whether the compiled code is used where it can be; otherwise PyTorch's operations are.
    fused: bool
    _kind: str
    _signature: _Signature

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.fused = True
        self._signature = _signature(self._kind, config)

    def _parameters_in_order(self) -> list[Tensor]:
        # As attributes: replicas of a module and parametrised modules have tensors there that are no
        # parameters.
        return [functools.reduce(getattr, name.split("."), self) for name in self._signature.names]

    def _call(self, x: Tensor, coordinates: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        words = {"fused": self.fused, "training": self.training}
        parameters = self._parameters_in_order()
        return _apply(self._kind, self.config, self._signature, parameters, x, coordinates, weights, **words)


class _Attention(_Module):
    """Attention of `kind`; the public ones are its subclasses."""

    _kind = "attention"

    def __init__(
        self,
        kind: str,
        features: int,
        heads: int = 1,
        coordinates: int = 1,
        *,
        norm: str = "layer",
        eps: float = 1e-5,
        dropout: float = 0.0,
        gain: float = 0.01,
        diagonal: float = 0.01,
    ) -> None:
        super().__init__(_attention_config(kind, features, heads, coordinates, norm, eps, dropout))
        self.linears = nn.ModuleList(nn.Linear(features, features) for _ in "QKV")
        if gain > 0:
            with torch.no_grad():
                for linear in self.linears:
                    nn.init.xavier_uniform_(linear.weight, gain)
                    linear.weight.diagonal().add_(diagonal)
                    linear.bias.zero_()
        if norm != "none":
            for name in "KV" if kind in ("galerkin", "linear") else "KQ":
                setattr(self, f"norm_{name}", nn.ModuleList(_Affine(features // heads) for _ in range(heads)))
        if coordinates:
            self.fc = nn.Linear(features + heads * coordinates, features)

    def forward(self, x: Tensor, coordinates: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """x (B, n, features) to the same; see `attention`."""
        return self._call(x, *_attention_inputs(self.config, x, coordinates, weights))

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={self.config[key]}" for key in ("features", "heads", "coordinates", "norm"))


class GalerkinAttention(_Attention):
    """Q (K̃ᵀṼ)/n, with layer norms of K and V inside the heads. See `attention` for the words, and
    `EncoderLayer` for `gain` and `diagonal`.

    >>> GalerkinAttention(8, heads=2, coordinates=1)(torch.randn(3, 20, 8), torch.rand(20, 1)).shape
    torch.Size([3, 20, 8])
    """

    def __init__(self, features: int, heads: int = 1, coordinates: int = 1, **words: Any) -> None:
        super().__init__("galerkin", features, heads, coordinates, **words)


class FourierAttention(_Attention):
    """(Q̃K̃ᵀ)V/(n√D), with layer norms of Q and K inside the heads of D = features/heads + coordinates
    columns. No n × n matrix is formed unless its weights are dropped.

    >>> FourierAttention(8, heads=2, coordinates=1)(torch.randn(3, 20, 8), torch.rand(20, 1)).shape
    torch.Size([3, 20, 8])
    """

    def __init__(self, features: int, heads: int = 1, coordinates: int = 1, **words: Any) -> None:
        super().__init__("fourier", features, heads, coordinates, **words)


class _FeedForward(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lr1, self.lr2 = nn.Linear(features, hidden), nn.Linear(hidden, features)


class EncoderLayer(_Module):
    """Attention, residual, feed-forward network, residual: x (B, n, features) to the same.

    `attention` is galerkin, fourier, linear or softmax. `coordinates` of a point stand in front of the
    features of every head; with 0 there is no output projection. `hidden` is the width of the feed-forward
    network, twice the features if it is not named. `norm` inside the heads is layer, instance or none, and
    `norm_after` puts a layer norm behind each residual. `dropout` acts before the residuals, `hidden_dropout`
    inside the feed-forward network, `attention_dropout` on the attention weights; all in training alone.
    `minus` takes the attention away from x. Projections begin uniform with gain `gain` and with `diagonal`
    added to the diagonal; gain 0 begins them as any other layer.

    Parameters have the names of the paper's `SimpleTransformerEncoderLayer`.

    >>> layer = EncoderLayer(8, heads=2, coordinates=2, attention="fourier")
    >>> layer(torch.randn(3, 20, 8), torch.rand(3, 20, 2), weights=torch.full((20,), 1 / 20)).shape
    torch.Size([3, 20, 8])
    """

    _kind = "encoder"

    def __init__(
        self,
        features: int,
        heads: int = 1,
        coordinates: int = 1,
        hidden: int | None = None,
        attention: str = "galerkin",
        *,
        activation: str = "relu",
        norm: str = "layer",
        norm_after: bool = False,
        eps: float = 1e-5,
        dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        minus: bool = False,
        gain: float = 0.01,
        diagonal: float = 0.01,
    ) -> None:
        hidden = 2 * features if hidden is None else hidden
        inner = _attention_config(attention, features, heads, coordinates, norm, eps, attention_dropout)
        super().__init__(
            [_layer_config(inner, hidden, activation, norm_after, eps, minus, dropout, hidden_dropout)]
        )
        words = {"norm": norm, "eps": eps, "dropout": attention_dropout, "gain": gain, "diagonal": diagonal}
        self.attn = _Attention(attention, features, heads, coordinates, **words)
        if norm_after:
            self.layer_norm1, self.layer_norm2 = _Affine(features), _Affine(features)
        self.ff = _FeedForward(features, hidden)

    def _parameters_in_order(self) -> list[Tensor]:
        # The compiled half has a stack of one layer, which is number 0.
        return [functools.reduce(getattr, name.split(".")[1:], self) for name in self._signature.names]

    def forward(self, x: Tensor, coordinates: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """`coordinates` (B, n, p), (1, n, p) or (n, p); `weights` (B, n) or (n), quadrature weights in place
        of 1/n.
        """
        return self._call(x, *_attention_inputs(self.config[0]["attention"], x, coordinates, weights))

    def extra_repr(self) -> str:
        return f"activation={self.config[0]['activation']}, norm_after={self.config[0]['norm_after']}"


class Encoder(_Module):
    """A stack of encoder layers as one call: `EncoderLayer` with `layers` of them. A layer can be had by its
    number.

    `equal` begins all layers with the values of the first, as the paper's code does.

    >>> stack = Encoder(4, 8, heads=2)
    >>> stack(torch.randn(3, 20, 8), torch.rand(20, 1)).shape, len(stack), list(stack.state_dict())[0]
    (torch.Size([3, 20, 8]), 4, '0.attn.linears.0.weight')
    """

    _kind = "encoder"

    def __init__(
        self,
        layers: int,
        features: int,
        heads: int = 1,
        coordinates: int = 1,
        *,
        equal: bool = False,
        **words: Any,
    ) -> None:
        if layers < 1:
            raise _expected("layers", "1 or more", layers)
        modules = [EncoderLayer(features, heads, coordinates, **words) for _ in range(layers)]
        super().__init__([module.config[0] for module in modules])
        for i, module in enumerate(modules):
            self.add_module(str(i), module)
            if equal:
                module.load_state_dict(modules[0].state_dict())

    def forward(self, x: Tensor, coordinates: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """As a layer."""
        return self._call(x, *_attention_inputs(self.config[0]["attention"], x, coordinates, weights))

    def __len__(self) -> int:
        return len(self.config)

    def __getitem__(self, layer: int) -> EncoderLayer:
        return getattr(self, str(range(len(self))[layer]))


class _SpectralConv(_Module):
    _kind = "spectral"

    def __init__(
        self,
        axes: int,
        inputs: int,
        outputs: int,
        modes: int,
        activation: str,
        dropout: float,
        law: str = "normal",
    ) -> None:
        if activation not in ACTIVATIONS:
            raise _expected("activation", " | ".join(ACTIVATIONS), repr(activation))
        config = {"axes": axes, "inputs": inputs, "outputs": outputs, "modes": modes}
        super().__init__(config | {"activation": activation, "dropout": dropout, "law": law})
        shape = (inputs, outputs, *[modes] * axes, 2)
        deviation = 1 / (inputs * outputs * (math.sqrt((inputs + outputs) * modes) if axes == 1 else modes))

        def draw() -> nn.Parameter:
            values = torch.empty(shape)
            return nn.Parameter(
                nn.init.normal_(values, 0, deviation)
                if law == "normal"
                else nn.init.uniform_(values, 0, 1 / (inputs * outputs))
            )

        if axes == 1:
            self.fourier_weight = draw()
        else:
            self.fourier_weight = nn.Module()
            for block in "01":
                self.fourier_weight.register_parameter(block, draw())
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, points…, inputs) to (B, points…, outputs)."""
        axes, inputs, modes = (self.config[key] for key in ("axes", "inputs", "modes"))
        if x.dim() != axes + 2 or x.shape[-1] != inputs or x.numel() == 0:
            points = ", ".join(f"n{axis + 1}" for axis in range(axes))
            raise _expected("x", f"shape (batch, {points}, {inputs}), with something in it", tuple(x.shape))
        *rows, last = x.shape[1:-1]
        if modes > min(last // 2 + 1, *rows, last):
            least = 2 * modes - 2
            raise _expected(
                "points",
                f"{least} or more along the last axis, {modes} or more along others, for {modes} modes",
                tuple(x.shape[1:-1]),
            )
        return self._call(x)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={self.config[key]}" for key in ("inputs", "outputs", "modes", "activation"))


class SpectralConv1d(_SpectralConv):
    """act(F⁻¹(w · F(x)) + x W + b) on a periodic line: x (B, n, inputs) to (B, n, outputs), n/2 + 1 ≥ modes.

    >>> SpectralConv1d(3, 5, modes=4)(torch.randn(2, 16, 3)).shape
    torch.Size([2, 16, 5])
    """

    def __init__(
        self, inputs: int, outputs: int, modes: int, *, activation: str = "silu", dropout: float = 0.0
    ) -> None:
        super().__init__(1, inputs, outputs, modes, activation, dropout)


class SpectralConv2d(_SpectralConv):
    """The same on a periodic square: x (B, n1, n2, inputs) to (B, n1, n2, outputs), n1 ≥ modes, n2/2 + 1 ≥
    modes.

    >>> SpectralConv2d(3, 5, modes=4)(torch.randn(2, 16, 12, 3)).shape
    torch.Size([2, 16, 12, 5])
    """

    def __init__(
        self, inputs: int, outputs: int, modes: int, *, activation: str = "silu", dropout: float = 0.0
    ) -> None:
        super().__init__(2, inputs, outputs, modes, activation, dropout)


class _Normalizer(nn.Module):
    """(u − mean)/(std + ε) and back, with statistics by channel (c) or by point (points…, c)."""

    EPS = 1e-5

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @property
    def kind(self) -> str:
        """As a config calls it."""
        return "point" if self.mean.dim() > 1 else "channel"

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return _array(self.mean.to("cpu", torch.float32)), _array(self.std.to("cpu", torch.float32))

    def _check(self, x: Tensor) -> None:
        if self.mean.dim() > 1 and self.mean.shape != x.shape[1:]:
            raise _expected(
                "values for a normaliser by point", f"(samples, {tuple(self.mean.shape)})", tuple(x.shape)
            )

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return (x - self.mean) / (self.std + self.EPS)

    def inverse(self, y: Tensor) -> Tensor:
        self._check(y)
        return torch.addcmul(self.mean, y, self.std + self.EPS)


def _plant(root: nn.Module, name: str, module: nn.Module) -> None:
    """Puts a module under a name with dots, with plain modules on the way."""
    *path, last = name.split(".")
    for step in path:
        if step not in root._modules:
            root.add_module(step, nn.Module())
        root = root._modules[step]
    root.add_module(last, module)


class _Network(_Module):
    """A network as it stands under `network` in the config of a run."""

    _kind = "network"

    def __init__(self, config: Config, normalizers: Sequence[_Normalizer | None] = (None, None)) -> None:
        config = json.loads(json.dumps(config))
        self._check_kind(config)
        # Defaults of settings that a config may leave out.
        config = {"output": "input", "native": [], **config}
        if config["kind"] == "transformer":
            config = {"closed_coordinates": False, "dropout": 0.0, **config}
            config["encoder"] = {"minus": False, "equal_layers": False, **config["encoder"]}
            config["lift"] = (
                {"coordinates": False, **config["lift"]}
                if config["lift"]["kind"] == "pointwise"
                else config["lift"]
            )
        if config["native"] or config["output"] not in ("input", "coarse"):
            found = f"native = {config['native']}, output = {config['output']}"
            raise _expected(
                "network",
                "one that computes on the grid of its input, with native = [] and output = input or coarse",
                found,
            )
        # What stands behind the body, boundary and normaliser, is done here: the body is free.
        self._boundary = config["boundary"]
        super().__init__({**config, "boundary": "free"})
        self._build()
        self.input_normalizer, self.normalizer = normalizers

    @classmethod
    def _check_kind(cls, config: Config) -> None:
        raise NotImplementedError

    def _build(self) -> None:
        config, axes = self.config, len(self.config["periodic"])
        if config["kind"] == "fno":
            spectral = config["spectral"]
            inputs = spectral["channels"] if spectral["coordinates"] else config["inputs"]
            self._decoder(spectral, "", config["inputs"], inputs)
            return
        lift, encoder, decoder = config["lift"], config["encoder"], config["decoder"]
        width = encoder["width"]
        if lift["kind"] == "pointwise":
            _plant(self, "feat_extract.id", nn.Linear(config["inputs"] + axes * lift["coordinates"], width))
        else:
            third = width // 3
            widths = [(config["inputs"], width), (width, third), (third, third), (third, width - 2 * third)]
            for i, (a, b) in enumerate(widths):
                _plant(
                    self, f"downscaler.downsample.conv{i}.conv.0", nn.Conv2d(a, b, 3, padding=1, bias=False)
                )
        self.encoder_layers = Encoder(
            encoder["layers"],
            width,
            encoder["heads"],
            axes,
            equal=encoder["equal_layers"],
            hidden=encoder["hidden"],
            attention=encoder["attention"],
            activation=encoder["activation"],
            norm=encoder["head_norm"],
            norm_after=encoder["residual_norm"],
            eps=encoder["eps"],
            dropout=encoder["residual_dropout"],
            hidden_dropout=encoder["hidden_dropout"],
            attention_dropout=encoder["attention_dropout"],
            minus=encoder["minus"],
            gain=encoder["gain"],
            diagonal=encoder["diagonal"],
        )
        if lift["kind"] == "interpolation":
            _plant(self, "upscaler.upsample.conv.0.conv.0", nn.Conv2d(width, width, 3, padding=1, bias=False))
        if decoder["kind"] == "spectral":
            self._decoder(
                decoder, "regressor.", width, decoder["channels"] if decoder["coordinates"] else width
            )
            return
        if decoder["coordinates"]:
            _plant(self, "regressor.fc", nn.Linear(width + axes, width))
        for i in range(decoder["layers"]):
            _plant(self, f"regressor.ff.{i}.0", nn.Linear(width, width))
        _plant(self, "regressor.out", nn.Linear(width, config["outputs"]))

    def _decoder(self, spectral: Config, at: str, inputs: int, hidden: int) -> None:
        axes, channels = len(self.config["periodic"]), spectral["channels"]
        if spectral["coordinates"]:
            _plant(self, f"{at}fc", nn.Linear(inputs + axes, hidden))
        for i in range(spectral["layers"]):
            words = (spectral["modes"], spectral["activation"], spectral["dropout"], spectral["law"])
            _plant(
                self,
                f"{at}spectral_conv.{i}",
                _SpectralConv(axes, channels if i else hidden, channels, *words),
            )
        _plant(self, f"{at}regressor.0", nn.Linear(channels, spectral["feed_forward"]))
        _plant(self, f"{at}regressor.2", nn.Linear(spectral["feed_forward"], self.config["outputs"]))

    def forward(self, x: Tensor) -> Tensor:
        """x (B, points…, inputs) to (B, points…, outputs), on any grid that the modes allow."""
        axes, inputs = len(self.config["periodic"]), self.config["inputs"]
        if x.dim() != axes + 2 or x.shape[-1] != inputs or x.numel() == 0:
            points = ", ".join(f"n{axis + 1}" for axis in range(axes))
            raise _expected("x", f"shape (batch, {points}, {inputs}), with something in it", tuple(x.shape))
        # Raises if the grid has too few points.
        _grids(json.dumps(self.config), tuple(x.shape[1:-1]))
        y = self._call(x if self.input_normalizer is None else self.input_normalizer(x))
        if self.normalizer is not None:
            y = self.normalizer.inverse(y)
        if self._boundary == "free":
            return y
        closed = [not periodic for periodic in self.config["periodic"]]
        inside = y[(slice(None), *(slice(1, -1) if ends else slice(None) for ends in closed))]
        return F.pad(inside, [0, 0] + [int(ends) for ends in reversed(closed) for _ in "01"])

    @property
    def network(self) -> dict[str, Any]:
        """What stands under `network` in the config of a run."""
        return {**self.config, "boundary": self._boundary}

    @classmethod
    def from_run(cls, path: str | os.PathLike[str], *, best: bool = False) -> Any:
        """The network of a run's folder or of a weight file, in evaluation mode, with its normalisers: it
        takes inputs as they are and answers in the units of the targets, as `galerkin.load(path)` does.
        `best` takes the weights with the smallest validation error. Normalisers are buffers:
        `input_normalizer` and `normalizer`."""
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: expected the folder of a run or a weight file, found nothing")
        config, weights, *statistics = _galerkin.load_weights(path, best)
        normalizers = [s if s is None else _Normalizer(*map(torch.from_numpy, s)) for s in statistics]
        config = json.loads(config)
        if cls is _Network:
            cls = _class_of(config)
        network = cls._of(config, normalizers)
        missing, extra = network.load_state_dict(
            {name: torch.from_numpy(a) for name, a in weights}, strict=False
        )
        wrong = [name for name in (*missing, *extra) if "normalizer." not in name]
        if wrong:
            raise _expected("weights", "those of the network", f"others: {', '.join(wrong)}")
        return network.eval()

    @classmethod
    def _of(cls, config: Config, normalizers: Sequence[_Normalizer | None] = (None, None)) -> Any:
        network = cls.__new__(cls)
        _Network.__init__(network, config, normalizers)
        return network

    @classmethod
    def from_config(cls, config: Config) -> Any:
        """A network, with initial weights from PyTorch's generator, of what stands under `network` in the
        config of a run.
        """
        return cls._of(config)

    def to_run(self, path: str | os.PathLike[str], config: str | None = None) -> None:
        """Makes the folder of a run with this network, for `galerkin.load`, the command's `predict` and
        `evaluate`.

        `config` is the TOML of the run that it belongs to, such as `config.toml` of a run's folder has; its network is
        replaced. Without one it is the preset burgers, darcy or fno of the library. Normalisers go along.
        """
        normalizers = (self.input_normalizer, self.normalizer)
        if config is None:
            axes, fno = len(self.config["periodic"]), "fno-" * (self.config["kind"] == "fno")
            sides = ("data.normalize_inputs", "data.normalize_targets")
            words = [(side, "none" if n is None else n.kind) for side, n in zip(sides, normalizers)]
            config = _galerkin.preset(fno + ("burgers", "darcy")[axes - 1], None, words)
        config = _galerkin.with_network(config, json.dumps(self.network))
        arrays = [_array(t.to("cpu", torch.float32)) for t in self._parameters_in_order()]
        statistics = [None if n is None else n.arrays() for n in normalizers]
        _galerkin.save_run(config, list(self._signature.names), arrays, *statistics, Path(path))


class Transformer1d(_Network):
    """Linear layer, encoder layers, spectral decoder on a line: x (B, n, inputs) to (B, n, outputs), n/2 + 1
    ≥ modes.

    Without words it is the paper's network for Burgers' equation. `layers`, `width`, `heads`, `hidden` and
    `attention` are of the encoder layers and `words` others of `EncoderLayer`; `channels`, `modes`,
    `convolutions` of the decoder. Points lie at j/n of the unit interval if it is `periodic`, and at j/(n −
    1) otherwise or with `closed_coordinates`, as in the paper's code. Anything else that a run can have is
    there through `from_config`.

    >>> network = Transformer1d(width=16, layers=2, channels=8, modes=4)
    >>> network(torch.randn(2, 64, 1)).shape
    torch.Size([2, 64, 1])
    """

    def __init__(
        self,
        inputs: int = 1,
        outputs: int = 1,
        *,
        layers: int = 4,
        width: int = 96,
        heads: int = 1,
        hidden: int | None = None,
        attention: str = "galerkin",
        channels: int = 48,
        modes: int = 16,
        convolutions: int = 2,
        periodic: bool = True,
        closed_coordinates: bool = False,
        **words: Any,
    ) -> None:
        config = {
            "kind": "transformer",
            "inputs": inputs,
            "outputs": outputs,
            "periodic": [periodic],
            "boundary": "free",
            "closed_coordinates": closed_coordinates,
            "lift": {"kind": "pointwise", "coordinates": False},
            "encoder": _encoder_words(layers, width, heads, hidden, attention, words),
            "decoder": {
                "kind": "spectral",
                **_spectral_words(channels, modes, convolutions, channels, False),
            },
        }
        super().__init__(config)

    @classmethod
    def _check_kind(cls, config: Config) -> None:
        if (config["kind"], len(config["periodic"])) != ("transformer", 1):
            raise _expected(
                "network", "a transformer on a line", f"{config['kind']} on {len(config['periodic'])} axes"
            )


class Transformer2d(_Network):
    """Interpolation network, encoder layers on the coarse grid, interpolation network, spectral decoder on a
    closed square: x (B, n1, n2, inputs) to (B, n1, n2, outputs).

    It is made for `fine` points a side, of which the encoder sees `coarse`; other grids keep the ratio.
    Without words it is the paper's network for Darcy flow on 85 × 85 points, without dropout. `boundary` is
    free or zero.

    >>> network = Transformer2d(fine=21, coarse=8, layers=2, width=16, heads=2, channels=8, modes=4)
    >>> network(torch.randn(2, 21, 21, 1)).shape
    torch.Size([2, 21, 21, 1])
    """

    def __init__(
        self,
        inputs: int = 1,
        outputs: int = 1,
        *,
        fine: int = 85,
        coarse: int = 29,
        layers: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        attention: str = "galerkin",
        channels: int = 32,
        modes: int = 12,
        convolutions: int = 2,
        boundary: str = "zero",
        **words: Any,
    ) -> None:
        lift = {
            "kind": "interpolation",
            "fine": fine,
            "coarse": coarse,
            "by_factor": True,
            "activation": "relu",
            "dropout": 0.0,
            "up_activation": "silu",
            "up_dropout": 0.0,
        }
        config = {
            "kind": "transformer",
            "inputs": inputs,
            "outputs": outputs,
            "periodic": [False, False],
            "boundary": boundary,
            "lift": lift,
            "encoder": _encoder_words(layers, width, heads, hidden, attention, {"eps": 1e-7, **words}),
            "decoder": {
                "kind": "spectral",
                **_spectral_words(channels, modes, convolutions, 4 * channels, True),
            },
        }
        super().__init__(config)

    @classmethod
    def _check_kind(cls, config: Config) -> None:
        if (config["kind"], len(config["periodic"])) != ("transformer", 2):
            raise _expected(
                "network", "a transformer on a square", f"{config['kind']} on {len(config['periodic'])} axes"
            )


class Fno(_Network):
    """The Fourier neural operator of Li et al., without batch normalisation: x (B, points…, inputs) to (B,
    points…, outputs), on as many axes as `periodic` has entries, one or two. Closed axes are padded with
    zeros for the convolutions, a share `padding` of the points.

    >>> Fno(channels=8, modes=4)(torch.randn(2, 32, 1)).shape
    torch.Size([2, 32, 1])
    >>> Fno(periodic=[False, False], channels=8, modes=4, padding=0.1)(torch.randn(2, 16, 16, 1)).shape
    torch.Size([2, 16, 16, 1])
    """

    def __init__(
        self,
        inputs: int = 1,
        outputs: int = 1,
        *,
        periodic: Sequence[bool] = (True,),
        channels: int = 64,
        modes: int = 16,
        convolutions: int = 4,
        hidden: int = 128,
        activation: str = "relu",
        padding: float = 0.0,
        dropout: float = 0.0,
        boundary: str = "free",
    ) -> None:
        spectral = _spectral_words(channels, modes, convolutions, hidden, True)
        spectral |= {
            "activation": activation,
            "last_activation": False,
            "law": "uniform",
            "padding": padding,
            "dropout": dropout,
        }
        config = {"kind": "fno", "inputs": inputs, "outputs": outputs, "periodic": list(periodic)}
        super().__init__(config | {"boundary": boundary, "spectral": spectral})

    @classmethod
    def _check_kind(cls, config: Config) -> None:
        if config["kind"] != "fno" or len(config["periodic"]) not in (1, 2):
            raise _expected(
                "network", "an fno on one or two axes", f"{config['kind']} on {len(config['periodic'])} axes"
            )


def _encoder_words(
    layers: int, width: int, heads: int, hidden: int | None, attention: str, words: Mapping[str, Any]
) -> dict[str, Any]:
    """The encoder of a network's config from the words of `EncoderLayer`."""
    known = {
        "activation": "relu",
        "norm": "layer",
        "norm_after": False,
        "eps": 1e-5,
        "minus": False,
        "gain": 0.01,
        "diagonal": 0.01,
        "equal": False,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    unknown = words.keys() - known.keys()
    if unknown:
        raise TypeError(f"expected {', '.join(known)}, found {', '.join(sorted(unknown))}")
    known.update(words)
    names = {
        "norm": "head_norm",
        "norm_after": "residual_norm",
        "equal": "equal_layers",
        "dropout": "residual_dropout",
    }
    config = {"attention": attention, "layers": layers, "width": width, "heads": heads}
    config["hidden"] = 2 * width if hidden is None else hidden
    return config | {names.get(name, name): value for name, value in known.items()}


def _spectral_words(
    channels: int, modes: int, layers: int, feed_forward: int, coordinates: bool
) -> dict[str, Any]:
    return {
        "layers": layers,
        "channels": channels,
        "modes": modes,
        "feed_forward": feed_forward,
        "activation": "silu",
        "last_activation": True,
        "coordinates": coordinates,
        "law": "normal",
        "padding": 0.0,
        "dropout": 0.0,
    }


def _class_of(config: Config) -> type[_Network]:
    for network in (Transformer1d, Transformer2d, Fno):
        try:
            network._check_kind(config)
        except ValueError:
            continue
        return network
    raise _expected(
        "network",
        "a transformer or an fno on one or two axes",
        f"{config['kind']} on {len(config['periodic'])} axes",
    )


def from_run(path: str | os.PathLike[str], *, best: bool = False) -> _Network:
    """The network of a run's folder or of a weight file as a module; see `Transformer1d.from_run`."""
    return _Network.from_run(path, best=best)


# --- threads ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def cooperate() -> bool:
    """Makes PyTorch's threads sleep when they have nothing to do, so that they leave their cores to
    galerkin's.

    After every operation of PyTorch its threads wait for the next one by turning in circles, for
    milliseconds. A fused layer between other layers then computes on what is left of the cores; on two cores
    it takes about twice as long. Call this once, at the start of a program that mixes the two. Where
    operations of PyTorch are many and tiny, waking its threads costs them some microseconds each.

    It works by the rule that threads of GNU's OpenMP library give up turning while there are more of them
    than cores: as many as there are cores are started, and sleep until the program ends. `GOMP_SPINCOUNT=0`
    in the environment, before PyTorch is imported, does the same.

    Returns whether it did, or the environment already says so: PyTorch may be built on another library, as it
    is outside Linux.
    """
    if os.environ.get("GOMP_SPINCOUNT") == "0" or os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return True
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libgomp" in line}
    except OSError:
        return False
    libraries = [library for library in map(ctypes.CDLL, sorted(paths)) if hasattr(library, "GOMP_parallel")]
    for library in libraries:
        begun = threading.Event()
        # A team of threads belongs to the thread that began it, and is gone with it.
        threading.Thread(target=_park, args=(library, begun), name="galerkin-cooperate", daemon=True).start()
        begun.wait()
    return bool(libraries)


def _park(library: ctypes.CDLL, begun: threading.Event) -> None:
    team = library.GOMP_parallel
    team.argtypes, team.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    # Every thread of the team calls a function that does nothing, and then waits for the next team.
    nothing = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
    team(nothing, None, library.omp_get_num_procs() + 1, 0)
    begun.set()
    threading.Event().wait()
