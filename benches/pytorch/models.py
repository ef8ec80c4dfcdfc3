"""The networks of "Choose a Transformer: Fourier or Galerkin" (Cao, NeurIPS 2021) and Fourier neural operators, in PyTorch.

Written from the paper to be measured beside the Rust implementation, and to be as fast as PyTorch's own operations make it: fused
attention (`scaled_dot_product_attention`) where it is the same mathematics, scales applied to n x d arrays and never to n x n
ones, convolutions in the channels-last format, and Fourier transforms along the second axis for the kept modes only.

`load(path)` makes a network from a weight file of ours: names of parameters are those of the file, and the sizes are the JSON under
`config` in its metadata. Channels are last at every interface: (B, n, c) and (B, n1, n2, c).
"""

import json
import math

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "silu": F.silu, "gelu": F.gelu}


def load(path: str, attention: str = "fast") -> nn.Module:
    """The network of a weight file, its attention computed in one of these ways:

    fast: as the paper writes it, by the fastest operations there are
    reassociated: Fourier attention as Q (K^T V) instead of (Q K^T) V
    authors: as the authors' code does, which scales all n x n weights and in training drops half of them, whatever its settings say
    """
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    config = json.loads(metadata["config"])
    network = network_of(config)
    for module in network.modules():
        if isinstance(module, Attention):
            module.way = attention
        elif isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    if "normalizer.mean" in arrays:
        mean, deviation = arrays.pop("normalizer.mean"), arrays.pop("normalizer.std")
        network.normalize_with(mean, deviation + float(metadata["normalizer.eps"]))
    network.load_state_dict(arrays)
    return network


def line(n: int, closed: bool = False) -> Tensor:
    """Points j/n of the periodic line, or j/(n - 1) of a closed one. (1, n, 1)"""
    return (torch.arange(n, dtype=torch.float64) / (n - 1 if closed else n)).float().view(1, n, 1)


def square(n1: int, n2: int) -> Tensor:
    """Points of the unit square with its boundary; the first coordinate varies along the last axis. (1, n1, n2, 2)"""
    x = (torch.arange(n2, dtype=torch.float64) / (n2 - 1)).float()
    y = (torch.arange(n1, dtype=torch.float64) / (n1 - 1)).float()
    return torch.stack([x.expand(n1, n2), y.view(n1, 1).expand(n1, n2)], dim=-1).unsqueeze(0)


class HeadNorm(nn.ModuleList):
    """A layer norm with weights of its own in every head, on (B, n, H, e)."""

    def __init__(self, heads: int, width: int, eps: float):
        super().__init__(nn.LayerNorm(width, eps=eps) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        if len(self) == 1:
            return self[0](x)
        weight = torch.stack([norm.weight for norm in self])
        bias = torch.stack([norm.bias for norm in self])
        return torch.addcmul(bias, F.layer_norm(x, self[0].normalized_shape, eps=self[0].eps), weight)


class Attention(nn.Module):
    """Galerkin, Fourier, linear or softmax attention with coordinates in front of the features of every head."""

    def __init__(self, config: dict):
        super().__init__()
        self.kind, self.heads = config["kind"], config["heads"]
        self.coordinates, self.dropout = config["coordinates"], config["dropout"]
        self.way = "fast"
        d = config["features"]
        self.linears = nn.ModuleList(nn.Linear(d, d) for _ in "qkv")
        self.normed = {"galerkin": "KV", "linear": "KV", "fourier": "QK", "softmax": "QK"}[self.kind]
        if config["norm"] == "none":
            self.normed = ""
        elif config["norm"] != "layer":
            raise ValueError(f"norm inside the heads: expected none or layer, found {config['norm']}")
        for name in self.normed:
            setattr(self, f"norm_{name}", HeadNorm(self.heads, d // self.heads, config["eps"]))
        if self.coordinates:
            self.fc = nn.Linear(d + self.heads * self.coordinates, d)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, n, d), positions (1, n, p) to (B, n, d)."""
        q, k, v = (self.project(name, linear, x, positions) for name, linear in zip("QKV", self.linears))
        y = getattr(self, self.kind)(q, k, v)
        y = y.transpose(1, 2).flatten(2)
        return self.fc(y) if self.coordinates else y

    def project(self, name: str, linear: nn.Linear, x: Tensor, positions: Tensor) -> Tensor:
        """One of Q, K, V: (B, H, n, D) with D = p + e."""
        y = linear(x).unflatten(-1, (self.heads, -1))
        if name in self.normed:
            y = getattr(self, f"norm_{name}")(y)
        y = y.transpose(1, 2)
        if not self.coordinates:
            return y
        batch, heads, n, _ = y.shape
        return torch.cat([positions.unsqueeze(1).expand(batch, heads, n, -1), y], dim=-1)

    def galerkin(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        moments = k.transpose(-2, -1) @ v
        return q @ self.drop(moments / k.shape[-2])

    def linear(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.galerkin(q.softmax(-1), k.softmax(-2), v)

    def fourier(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n, width = q.shape[-2:]
        if self.way == "authors":
            return self.drop_half(q @ k.transpose(-2, -1) / math.sqrt(width) / n) @ v
        scale = 1.0 / (n * math.sqrt(width))
        if self.way == "reassociated":
            if self.training and self.dropout:
                raise ValueError("dropout acts on the n x n weights, which re-association never forms")
            return q @ ((k.transpose(-2, -1) @ v) * scale)
        return self.drop((q * scale) @ k.transpose(-2, -1)) @ v

    def softmax(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.way == "authors":
            return self.drop_half((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)) @ v
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)

    def drop_half(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, 0.5, self.training)

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout, self.training) if self.dropout else weights


class FeedForward(nn.Module):
    """Two linear layers, as the encoder layers have them."""

    def __init__(self, d: int, hidden: int, activation: str, dropout: float):
        super().__init__()
        self.lr1, self.lr2 = nn.Linear(d, hidden), nn.Linear(hidden, d)
        self.activation, self.dropout = ACTIVATIONS[activation], nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.lr2(self.dropout(self.activation(self.lr1(x))))


class EncoderLayer(nn.Module):
    """Attention, residual, feed-forward network, residual, with a layer norm after each residual if asked for."""

    def __init__(self, config: dict):
        super().__init__()
        d = config["attention"]["features"]
        self.attn = Attention(config["attention"])
        self.ff = FeedForward(d, config["hidden"], config["activation"], config["hidden_dropout"])
        self.sign = -1 if config["minus"] else 1
        self.norm_after = config["norm_after"]
        if self.norm_after:
            self.layer_norm1 = nn.LayerNorm(d, eps=config["eps"])
            self.layer_norm2 = nn.LayerNorm(d, eps=config["eps"])
        self.dropout = nn.Dropout(config["residual_dropout"])

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = torch.add(x, self.dropout(self.attn(x, positions)), alpha=self.sign)
        if self.norm_after:
            x = self.layer_norm1(x)
        x = x + self.dropout(self.ff(x))
        return self.layer_norm2(x) if self.norm_after else x


class SpectralConv1d(nn.Module):
    """The lowest modes of x multiplied by weights, plus a pointwise linear layer; (B, n, c)."""

    def __init__(self, inputs: int, outputs: int, modes: int, activation: str, dropout: float):
        super().__init__()
        self.fourier_weight = nn.Parameter(torch.empty(inputs, outputs, modes, 2))
        self.linear = nn.Linear(inputs, outputs)
        self.modes, self.activation, self.dropout = modes, ACTIVATIONS[activation], nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        spectrum = torch.fft.rfft(self.dropout(x), dim=1, norm="ortho")[:, : self.modes]
        spectrum = torch.einsum("bki,iok->bko", spectrum, torch.view_as_complex(self.fourier_weight))
        # Modes that are not there are zeros to irfft.
        return self.activation(torch.fft.irfft(spectrum, n=n, dim=1, norm="ortho") + self.linear(x))


class SpectralConv2d(nn.Module):
    """The same on a square, with weights for rows of positive and of negative frequency; (B, n1, n2, c)."""

    def __init__(self, inputs: int, outputs: int, modes: int, activation: str, dropout: float):
        super().__init__()
        weights = [nn.Parameter(torch.empty(inputs, outputs, modes, modes, 2)) for _ in range(2)]
        self.fourier_weight = nn.ParameterList(weights)
        self.linear = nn.Linear(inputs, outputs)
        self.modes, self.activation, self.dropout = modes, ACTIVATIONS[activation], nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        (_, n1, n2, _), m = x.shape, self.modes
        spectrum = torch.fft.rfft(self.dropout(x), dim=2, norm="ortho")[:, :, :m]
        spectrum = torch.fft.fft(spectrum, dim=1, norm="ortho")
        low, high = (torch.view_as_complex(weight) for weight in self.fourier_weight)
        product = spectrum.new_zeros(*spectrum.shape[:3], low.shape[1])
        product[:, :m] = torch.einsum("bkli,iokl->bklo", spectrum[:, :m], low)
        product[:, -m:] = torch.einsum("bkli,iokl->bklo", spectrum[:, -m:], high)
        product = torch.fft.ifft(product, dim=1, norm="ortho")
        z = torch.fft.irfft(product, n=n2, dim=2, norm="ortho")
        return self.activation(z + self.linear(x))


class SpectralDecoder(nn.Module):
    """[x | grid] to hidden channels if there are coordinates, spectral convolutions, a two-layer network."""

    def __init__(self, config: dict, convolution: type):
        super().__init__()
        act, layers, channels = config["activation"], config["layers"], config["channels"]
        self.coordinates = config["coordinates"]
        if self.coordinates:
            self.fc = nn.Linear(config["inputs"] + self.coordinates, config["hidden"])
        last = act if config["last_activation"] else "none"
        self.spectral_conv = nn.ModuleList(
            convolution(
                config["hidden"] if i == 0 else channels,
                channels,
                config["modes"],
                act if i + 1 < layers else last,
                config["dropout"],
            )
            for i in range(layers)
        )
        # The activation between the two has the number 1 in the names.
        first, second = nn.Linear(channels, config["feed_forward"]), nn.Linear(config["feed_forward"], config["outputs"])
        self.regressor = nn.ModuleDict({"0": first, "2": second})
        self.activation = ACTIVATIONS[act]

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        if self.coordinates:
            x = self.fc(torch.cat([x, grid.expand(*x.shape[:-1], -1)], dim=-1))
        for convolution in self.spectral_conv:
            x = convolution(x)
        return self.regressor["2"](self.activation(self.regressor["0"](x)))


class PointwiseDecoder(nn.Module):
    """[x | grid] to hidden features if there are coordinates, linear layers with activation, a linear layer."""

    def __init__(self, config: dict):
        super().__init__()
        hidden, self.coordinates = config["hidden"], config["coordinates"]
        if self.coordinates:
            self.fc = nn.Linear(config["inputs"] + self.coordinates, hidden)
        self.ff = nn.ModuleList(nn.ModuleList([nn.Linear(hidden, hidden)]) for _ in range(config["layers"]))
        self.out = nn.Linear(hidden, config["outputs"])
        self.activation, self.dropout = ACTIVATIONS[config["activation"]], nn.Dropout(config["dropout"])

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        if self.coordinates:
            x = self.fc(torch.cat([x, grid.expand(*x.shape[:-1], -1)], dim=-1))
        for (linear,) in self.ff:
            x = self.dropout(self.activation(linear(x)))
        return self.out(x)


class Convolution(nn.Module):
    """A 3 x 3 convolution, dropout, activation; (B, c, n1, n2)."""

    def __init__(self, inputs: int, outputs: int, activation: str, dropout: float):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.Dropout(dropout))
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.conv(x))


def resize(x: Tensor, size: int) -> Tensor:
    """Bilinear, corners on corners; (B, c, n, n) to (B, c, size, size)."""
    if x.shape[-1] == size:
        return x
    return F.interpolate(x, size=(size, size), mode="bilinear", align_corners=True)


class Downscaler(nn.Module):
    """The interpolation network from the fine grid to the coarse one; channels first."""

    def __init__(self, config: dict, sizes: tuple[int, int]):
        super().__init__()
        width, act, dropout = config["outputs"], config["activation"], config["dropout"]
        third = width // 3
        widths = [(config["inputs"], width), (width, third), (third, third), (third, width - 2 * third)]
        self.downsample = nn.ModuleDict(
            {f"conv{i}": Convolution(a, b, act, dropout) for i, (a, b) in enumerate(widths)}
        )
        self.sizes, self.activation = sizes, ACTIVATIONS[act]

    def forward(self, x: Tensor) -> Tensor:
        conv = self.downsample
        x = self.activation(resize(conv["conv0"](x), self.sizes[0]))
        first = conv["conv1"](x)
        second = conv["conv2"](first)
        third = conv["conv3"](second)
        return self.activation(resize(torch.cat([first, second, third], dim=1), self.sizes[1]))


class Upscaler(nn.Module):
    """The interpolation network to the grid of the output; channels first."""

    def __init__(self, config: dict, sizes: tuple[int, int]):
        super().__init__()
        d, act, dropout = config["channels"], config["activation"], config["dropout"]
        self.upsample = nn.ModuleDict({"conv": nn.ModuleList([Convolution(d, d, act, dropout)])})
        self.sizes, self.activation, self.dropout = sizes, ACTIVATIONS[act], nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.upsample["conv"][0](resize(x, self.sizes[0]))
        return resize(self.activation(self.dropout(x)), self.sizes[1])


def scaler_sizes(config: dict) -> tuple[tuple[int, int], tuple[int, int]]:
    """Sizes after each resize, down and up, of a network for fine and coarse points a side.

    The paper's code takes the square root of the ratio to a multiple of 0.005, upwards if its last decimal is below 5.
    """
    fine, coarse = config["fine"], config["coarse"]
    ratio = round(math.sqrt(coarse / fine), 4)
    lifted = round(ratio, 3) + (0.005 if int(str(ratio)[-1]) < 5 else 0.0)
    factor = math.floor(lifted / 0.005 + 0.5) * 0.005
    middle = round(fine * factor) - 1
    down = (middle, coarse)
    if config["by_factor"]:
        down = (math.floor(fine * factor), math.floor(math.floor(fine * factor) * factor))
    return down, (down[1], down[1]) if config["coarse_output"] else (middle, fine)


class Encoder(nn.Module):
    """Encoder layers alone; (B, n, d) to (B, n, d) on the periodic line."""

    def __init__(self, config: dict):
        super().__init__()
        self.encoder_layers = nn.ModuleList(EncoderLayer(config["encoder"]) for _ in range(config["layers"]))

    def forward(self, x: Tensor) -> Tensor:
        positions = line(x.shape[1])
        for layer in self.encoder_layers:
            x = layer(x, positions)
        return x


class Transformer1d(nn.Module):
    """Linear layer, encoder layers, spectral decoder; (B, n, c)."""

    def __init__(self, config: dict):
        super().__init__()
        d = config["encoder"]["attention"]["features"]
        self.feat_extract = nn.ModuleDict({"id": nn.Linear(config["inputs"], d)})
        self.encoder_layers = nn.ModuleList(EncoderLayer(config["encoder"]) for _ in range(config["layers"]))
        self.regressor = SpectralDecoder(config["decoder"], SpectralConv1d)
        self.dropout, self.closed = nn.Dropout(config["dropout"]), config["closed_coordinates"]

    def forward(self, x: Tensor) -> Tensor:
        positions = line(x.shape[1], self.closed)
        x = self.feat_extract["id"](x)
        for layer in self.encoder_layers:
            x = layer(x, positions)
        return self.regressor(self.dropout(x), positions)


class OnSquare(nn.Module):
    """What networks on a square end with: the inverse of the targets' normaliser, and a boundary condition."""

    def __init__(self, config: dict):
        super().__init__()
        self.dirichlet = config["boundary"] == "zero"
        self.mean = self.scale = None

    def normalize_with(self, mean: Tensor, scale: Tensor) -> None:
        self.mean, self.scale = mean, scale

    def finish(self, y: Tensor) -> Tensor:
        if self.mean is not None:
            y = torch.addcmul(self.mean, y, self.scale)
        return F.pad(y[:, 1:-1, 1:-1], (0, 0, 1, 1, 1, 1)) if self.dirichlet else y


class Transformer2d(OnSquare):
    """Interpolation network, encoder layers on the coarse grid, interpolation network, decoder; (B, n, n, c)."""

    def __init__(self, config: dict):
        super().__init__(config)
        down, up = scaler_sizes(config["resampling"])
        self.downscaler = Downscaler(config["downsampler"], down)
        self.upscaler = Upscaler(config["upsampler"], up)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config["encoder"]) for _ in range(config["layers"]))
        decoder = config["decoder"]
        spectral = decoder["kind"] == "spectral"
        self.regressor = SpectralDecoder(decoder, SpectralConv2d) if spectral else PointwiseDecoder(decoder)
        self.dropout, self.coarse, self.output = nn.Dropout(config["dropout"]), down[1], up[1]

    def forward(self, x: Tensor) -> Tensor:
        n, positions = self.coarse, square(self.coarse, self.coarse).flatten(1, 2)
        x = self.downscaler(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = self.dropout(x.flatten(1, 2))
        for layer in self.encoder_layers:
            x = layer(x, positions)
        x = self.upscaler(x.unflatten(1, (n, n)).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.finish(self.regressor(self.dropout(x), square(self.output, self.output)))


class Fno1d(SpectralDecoder):
    """The Fourier neural operator on the periodic line; (B, n, c)."""

    def __init__(self, config: dict):
        super().__init__(config["decoder"], SpectralConv1d)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, line(x.shape[1]))


class Fno2d(OnSquare):
    """The Fourier neural operator on the square; (B, n1, n2, c)."""

    def __init__(self, config: dict):
        super().__init__(config)
        decoder = SpectralDecoder(config["decoder"], SpectralConv2d)
        # Under the decoder's own names, without a prefix.
        self.fc, self.spectral_conv, self.regressor = decoder.fc, decoder.spectral_conv, decoder.regressor
        self.activation = decoder.activation

    def forward(self, x: Tensor) -> Tensor:
        grid = square(*x.shape[1:3]).expand(*x.shape[:3], 2)
        x = self.fc(torch.cat([x, grid], dim=-1))
        for convolution in self.spectral_conv:
            x = convolution(x)
        return self.finish(self.regressor["2"](self.activation(self.regressor["0"](x))))


def network_of(config: dict) -> nn.Module:
    """The network of a config as it stands in a weight file: what its parts share is said there once, and every part is told it here."""
    if config["kind"] == "encoder":
        return Encoder(config)
    axes = len(config["periodic"])
    if axes > 2 or config["output"] not in ("input", "coarse"):
        raise ValueError(f"expected a line or a square and an output on the grid of the input, found {config}")
    if config["kind"] == "fno":
        decoder = decoder_of(config["spectral"] | {"kind": "spectral"}, axes, config["inputs"], config["outputs"])
        return (Fno1d if axes == 1 else Fno2d)(config | {"decoder": decoder})
    encoder, lift = config["encoder"], config["lift"]
    attention = {
        "kind": encoder["attention"],
        "features": encoder["width"],
        "heads": encoder["heads"],
        "coordinates": axes,
        "norm": encoder["head_norm"],
        "eps": encoder["eps"],
        "dropout": encoder["attention_dropout"],
    }
    parts = config | {
        "encoder": encoder | {"attention": attention, "norm_after": encoder["residual_norm"]},
        "layers": encoder["layers"],
        "decoder": decoder_of(config["decoder"], axes, encoder["width"], config["outputs"]),
    }
    if lift["kind"] == "pointwise":
        if axes == 2 or lift["coordinates"]:
            raise ValueError(f"pointwise lift: expected a line without coordinates, found {config}")
        return Transformer1d(parts)
    down = {"inputs": config["inputs"], "outputs": encoder["width"]} | {k: lift[k] for k in ("activation", "dropout")}
    up = {"channels": encoder["width"], "activation": lift["up_activation"], "dropout": lift["up_dropout"]}
    resampling = lift | {"coarse_output": config["output"] == "coarse"}
    return Transformer2d(parts | {"downsampler": down, "upsampler": up, "resampling": resampling})


def decoder_of(config: dict, axes: int, inputs: int, outputs: int) -> dict:
    """A decoder's config with the sizes that its neighbours decide."""
    if config.get("padding", 0.0) != 0.0:
        raise ValueError(f"padding: expected 0, found {config['padding']}")
    coordinates = axes if config["coordinates"] else 0
    hidden = config["channels"] if config["kind"] == "spectral" and coordinates else inputs
    return config | {"coordinates": coordinates, "hidden": hidden, "inputs": inputs, "outputs": outputs}
