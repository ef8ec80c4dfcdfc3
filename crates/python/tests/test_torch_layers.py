"""Fused and composed layers of `galerkin.torch` agree, in values and in gradients."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch", reason="galerkin.torch is for those who have PyTorch")

import galerkin.torch as gt  # noqa: E402

EPS = torch.finfo(torch.float32).eps


def roundings(found, exact, scale=None):
    """The largest difference in roundings of float32 of the largest exact value."""
    assert found.shape == exact.shape
    scale = exact.abs().max() if scale is None else scale
    return (
        ((found.double() - exact).abs().max() / (EPS * scale)).item()
        if scale > 0
        else found.abs().max().item()
    )


def results(module, x, *inputs, gradient, **words):
    """y, the gradient of x, and those of the parameters by name, of y times `gradient`, summed."""
    x = x.detach().clone().requires_grad_()
    module.zero_grad()
    y = module(x, *inputs, **words)
    y.backward(gradient)
    return {"y": y.detach(), "x": x.grad} | {name: p.grad.clone() for name, p in module.named_parameters()}


def doubled(value):
    return value.double() if isinstance(value, torch.Tensor) else value


def assert_same(module, x, *inputs, most, **words):
    """Fused and composed in float32 are as near to the composition in float64 as `most` roundings of the
    largest value.

    A gradient that vanishes by symmetry, of a bias before a norm, is compared with the size of its weight's.
    """
    torch.manual_seed(7)
    with torch.no_grad():
        gradient = torch.randn_like(module(x, *inputs, **words))
    exact_words = {name: doubled(value) for name, value in words.items()}
    exact_module = copy.deepcopy(module).double()
    exact = results(
        exact_module, x.double(), *map(doubled, inputs), gradient=gradient.double(), **exact_words
    )
    worst = {}
    for fused in (True, False):
        module.fused = fused
        found = results(module, x, *inputs, gradient=gradient, **words)
        assert found.keys() == exact.keys()
        for name, value in found.items():
            beside = exact.get(name.replace("bias", "weight"), exact[name])
            scale = max(exact[name].abs().max(), beside.abs().max())
            worst[fused, name] = roundings(value, exact[name], scale)
    module.fused = True
    bad = {key: count for key, count in worst.items() if not count <= most}
    assert not bad, bad
    return worst


def varied(module):
    """Weights that are not those of the beginning: every part counts."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if "fourier_weight" in name:
                p.normal_(std=0.5 / p.shape[0] ** 0.5)
            elif name.endswith("weight") and p.dim() > 1:
                p.normal_(std=p[0].numel() ** -0.5)
            else:
                p.add_(0.3 * torch.randn_like(p))
    return module


ATTENTIONS = ("galerkin", "fourier", "linear", "softmax")


@pytest.mark.parametrize("kind, heads, p", list(itertools.product(ATTENTIONS, (1, 2), (0, 2))))
def test_attention(kind, heads, p):
    torch.manual_seed(0)
    module = varied(gt._Attention(kind, 8, heads, p))
    x, coordinates = torch.randn(3, 33, 8), torch.rand(3, 33, p) if p else None
    # Sums of 33 and of 8 terms, twice one after the other, and back. Measured: up to 11.
    assert_same(module, x, coordinates, most=40)
    weights = torch.rand(3, 33) / 20
    assert_same(module, x, coordinates, weights=weights, most=40)


@pytest.mark.parametrize("kind", ATTENTIONS)
@pytest.mark.parametrize(
    "words",
    [
        {},
        {"norm": "none", "norm_after": True, "activation": "gelu"},
        {"norm": "instance", "minus": True, "activation": "silu"},
        {"norm_after": True, "hidden": 5, "activation": "none", "eps": 1e-3},
    ],
    ids=lambda words: "-".join(map(str, words)) or "plain",
)
def test_encoder_layer(kind, words):
    torch.manual_seed(0)
    module = varied(gt.EncoderLayer(12, heads=3, coordinates=1, attention=kind, **words))
    x, coordinates = torch.randn(2, 50, 12), torch.linspace(0, 1, 50).view(50, 1)
    # As attention, and a feed-forward network behind it. Measured: up to 15.
    assert_same(module, x, coordinates, most=60)


def test_a_stack_is_its_layers():
    torch.manual_seed(0)
    stack = varied(gt.Encoder(3, 8, heads=2, attention="fourier"))
    x, coordinates = torch.randn(2, 40, 8), torch.rand(2, 40, 1)
    # Three layers behind each other. Measured: up to 17.
    assert_same(stack, x, coordinates, most=70)
    with torch.no_grad():
        y = x
        for layer in stack:
            y = layer(y, coordinates)
        # The same kernels on the same numbers.
        assert torch.equal(stack(x, coordinates), y)


@pytest.mark.parametrize(
    "module, shape",
    [
        (gt.SpectralConv1d(3, 5, 4), (2, 17, 3)),
        (gt.SpectralConv1d(3, 5, 9, activation="none"), (2, 16, 3)),
        (gt.SpectralConv2d(3, 4, 3), (2, 11, 9, 3)),
        (gt.SpectralConv2d(3, 4, 5, activation="relu"), (2, 8, 8, 3)),
        (gt.SpectralConv2d(3, 4, 5), (2, 5, 9, 3)),
    ],
    ids=["line", "all modes", "square", "rows that meet", "all rows meet"],
)
def test_spectral_convolution(module, shape):
    torch.manual_seed(0)
    # Sums of a hundred terms there and back. Measured: up to 3.
    assert_same(varied(module), torch.randn(shape), most=10)


# Smooth, all of them: where a value lies within a rounding of the kink of a ReLU, its gradient is one thing
# or another.
SMOOTH = {"activation": "silu"}
SQUARE = {"fine": 21, "coarse": 8, "width": 12, "heads": 2, "channels": 6, "modes": 3}


def square(**words):
    config = gt.Transformer2d(**SQUARE, **SMOOTH, **words).network
    return gt.Transformer2d.from_config({**config, "lift": config["lift"] | SMOOTH})


NETWORKS = {
    "line": (lambda: gt.Transformer1d(width=16, layers=2, channels=8, modes=5, **SMOOTH), (2, 40, 1)),
    "line of the paper's code": (
        lambda: gt.Transformer1d(
            2,
            3,
            width=12,
            heads=2,
            layers=2,
            channels=6,
            modes=4,
            attention="fourier",
            norm_after=True,
            closed_coordinates=True,
            **SMOOTH,
        ),
        (2, 33, 2),
    ),
    "closed line": (
        lambda: gt.Transformer1d(
            width=8, layers=1, channels=6, modes=4, periodic=False, attention="linear", **SMOOTH
        ),
        (2, 21, 1),
    ),
    "square": (lambda: square(layers=2), (2, 21, 21, 1)),
    "oblong": (lambda: square(layers=1, boundary="free"), (2, 21, 25, 1)),
    "fno": (lambda: gt.Fno(channels=8, modes=5, **SMOOTH), (2, 30, 1)),
    "fno on a cylinder": (
        lambda: gt.Fno(
            2, 3, periodic=[False, True], channels=6, modes=3, padding=0.2, boundary="zero", **SMOOTH
        ),
        (2, 10, 9, 2),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    # A dozen operations behind each other, on values that grow on the way. Measured: up to 78.
    assert_same(varied(make()), torch.randn(shape), most=240)


@pytest.mark.parametrize("name", NETWORKS)
def test_names_and_shapes_are_those_of_the_library(name):
    module = NETWORKS[name][0]()
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == dict(zip(*module._signature))


def test_functions_are_the_modules():
    torch.manual_seed(0)
    x, coordinates = torch.randn(2, 20, 8), torch.rand(20, 1)
    layer = varied(
        gt.EncoderLayer(8, heads=2, attention="linear", norm="instance", norm_after=True, hidden=5, eps=1e-4)
    )
    words = {"heads": 2, "norm": "instance", "eps": 1e-4}
    for fused in (True, False):
        layer.fused = layer.attn.fused = fused
        y = gt.encoder_layer(
            x, dict(layer.named_parameters()), coordinates, attention="linear", fused=fused, **words
        )
        assert torch.equal(y, layer(x, coordinates))
        y = gt.attention(
            x, dict(layer.attn.named_parameters()), coordinates, kind="linear", fused=fused, **words
        )
        assert torch.equal(y, layer.attn(x, coordinates))


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_gradients_of_the_composition(kind):
    torch.manual_seed(0)
    module = varied(
        gt.EncoderLayer(
            4, heads=2, coordinates=1, hidden=3, attention=kind, activation="silu", norm_after=True
        )
    ).double()
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    coordinates = torch.rand(2, 5, 1, dtype=torch.float64, requires_grad=True)
    weights = (torch.rand(2, 5, dtype=torch.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda *inputs: module(*inputs), (x, coordinates, weights))


def test_gradients_of_the_composed_convolutions():
    for module, shape in (
        (gt.SpectralConv1d(2, 3, 3), (2, 7, 2)),
        (gt.SpectralConv2d(2, 2, 2), (1, 5, 4, 2)),
    ):
        module = varied(module).double()
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        parameters = tuple(module.parameters())
        assert torch.autograd.gradcheck(lambda x, *_: module(x), (x, *parameters))


def test_ten_steps_of_training():
    """Fused and composed trainings stay together."""
    torch.manual_seed(0)
    network = gt.Transformer1d(width=16, layers=2, channels=8, modes=5)
    x = torch.randn(4, 40, 1)
    target = x.roll(3, 1) + 0.5 * x
    losses = {}
    for fused in (True, False):
        module = copy.deepcopy(network)
        module.fused = fused
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        losses[fused] = []
        for _ in range(10):
            loss = (module(x) - target).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[fused].append(loss.item())
    assert losses[True][-1] < 0.9 * losses[True][0]
    # A rounding or two of every loss, and what Adam makes of those of the gradients. Measured: up to 2.4e-7.
    assert losses[True] == pytest.approx(losses[False], rel=1e-6)
