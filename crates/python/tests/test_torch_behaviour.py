"""How modules of `galerkin.torch` behave in programs of PyTorch."""

import concurrent.futures
import copy
import gc
import io
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="galerkin.torch is for those who have PyTorch")

import galerkin as gk  # noqa: E402
import galerkin.torch as gt  # noqa: E402
from torch import nn  # noqa: E402

# What PyTorch itself says of its older functions.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit", "ignore::torch.jit.TracerWarning", "ignore:.*functional_call"
)
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def same(found, expected, most=64):
    """Within so many roundings of float32 of the largest value; test_torch_layers.py counts them."""
    return (found - expected).abs().max() <= most * torch.finfo(torch.float32).eps * expected.abs().max()


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return gt.EncoderLayer(8, heads=2, gain=1.0)


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return torch.randn(3, 20, 8), torch.rand(20, 1)


def composed(module):
    module = copy.deepcopy(module)
    module.fused = False
    return module


class Counted:
    """Counts calls of the compiled half."""

    def __init__(self, monkeypatch):
        self.calls, run = 0, gt._run

        def counted(*arguments):
            self.calls += 1
            return run(*arguments)

        monkeypatch.setattr(gt, "_run", counted)


@pytest.fixture
def counted(monkeypatch):
    return Counted(monkeypatch)


def test_what_is_fused_and_what_is_not(layer, inputs, counted):
    x, coordinates = inputs
    layer(x, coordinates)
    assert counted.calls == 1
    layer.fused = False
    layer(x, coordinates)
    layer.fused = True
    copy.deepcopy(layer).double()(x.double(), coordinates.double())
    layer(x, coordinates.clone().requires_grad_())
    layer(x, coordinates, torch.full((20,), 0.05, requires_grad=True))
    copy.deepcopy(layer).to("meta")(x.to("meta"), coordinates.to("meta"))
    copy.deepcopy(layer).bfloat16()(x.bfloat16(), coordinates.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x, coordinates)
    torch.jit.trace(composed(layer), (x, coordinates))
    assert counted.calls == 1
    with torch.no_grad():
        layer(x, coordinates.clone().requires_grad_())
    assert counted.calls == 2


def test_tracing_records_the_composition(layer, inputs):
    x, coordinates = inputs
    traced = torch.jit.trace(layer, (x, coordinates))
    assert same(traced(2 * x, coordinates), composed(layer)(2 * x, coordinates))


def test_gradients_of_coordinates_and_weights(layer, inputs):
    x, coordinates = inputs
    weights = torch.full((3, 20), 0.05)
    found = {}
    for fused in (True, False):
        layer.fused = fused
        c, w = coordinates.clone().requires_grad_(), weights.clone().requires_grad_()
        found[fused] = torch.autograd.grad(layer(x, c, w).pow(2).sum(), (c, w))
    assert all(torch.equal(a, b) and a.abs().max() > 0 for a, b in zip(found[True], found[False]))


def test_only_gradients_that_are_wanted(layer, inputs):
    x, coordinates = inputs
    for p in layer.attn.parameters():
        p.requires_grad_(False)
    y = layer(x, coordinates)
    y.sum().backward()
    assert x.grad is None and layer.attn.fc.weight.grad is None and layer.ff.lr1.weight.grad is not None
    for p in layer.parameters():
        p.requires_grad_(False)
    assert not layer(x, coordinates).requires_grad
    x.requires_grad_()
    (dx,) = torch.autograd.grad(layer(x, coordinates).pow(2).sum(), x)
    (expected,) = torch.autograd.grad(composed(layer)(x, coordinates).pow(2).sum(), x)
    assert same(dx, expected)


def test_without_gradients_nothing_is_kept(layer, inputs):
    with torch.no_grad():
        y = layer(*inputs)
    assert not y.requires_grad and y.grad_fn is None
    with torch.inference_mode():
        assert torch.equal(layer(*inputs), y)
    assert torch.equal(layer(*inputs).detach(), y)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_forward_passes_without_backward_passes_leave_no_memory():
    layer = gt.EncoderLayer(64)
    x, coordinates = torch.randn(4, 1024, 64), torch.rand(1024, 1)

    def pass_by(times):
        for _ in range(times):
            layer(x, coordinates)
        gc.collect()

    pass_by(5)
    before = resident()
    pass_by(40)
    # Each keeps more than 6 MB.
    assert resident() - before < 60e6


def test_a_retained_graph_is_gone_through_twice(layer, inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    layer.train()
    y = layer(x, coordinates)
    first = torch.autograd.grad(y.sum(), [x, *layer.parameters()], retain_graph=True)
    second = torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_retained_graph_repeats_its_dropout(inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    layer = gt.EncoderLayer(8, dropout=0.3, hidden_dropout=0.2, attention_dropout=0.1)
    y = layer(x, coordinates)
    first, second = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_changed_parameters_are_noticed_as_pytorch_notices_them(layer, inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    y = layer(x, coordinates)
    y.sum().backward(retain_graph=True)
    with torch.no_grad():
        layer.ff.lr1.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_several_uses_of_one_layer(layer, inputs):
    x, coordinates = inputs
    found = {}
    for fused in (True, False):
        layer.fused = fused
        layer.zero_grad()
        layer(layer(x, coordinates) + x, coordinates).pow(2).mean().backward()
        found[fused] = layer.attn.linears[1].weight.grad
    assert same(found[True], found[False])


def test_second_derivatives_are_an_error(layer, inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    y = layer(x, coordinates)
    with pytest.raises(RuntimeError, match="second derivatives: set fused = False"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    layer.fused = False
    (dx,) = torch.autograd.grad(layer(x, coordinates).sum(), x, create_graph=True)
    dx.pow(2).sum().backward()
    assert layer.ff.lr1.weight.grad.abs().max() > 0


def test_forward_mode_is_an_error(layer, inputs):
    x, coordinates = inputs
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        with pytest.raises(RuntimeError, match="fused = False"):
            layer(forward.make_dual(x, torch.ones_like(x)), coordinates)
        layer.fused = False
        assert (
            forward.unpack_dual(layer(forward.make_dual(x, torch.ones_like(x)), coordinates)).tangent
            is not None
        )


@pytest.mark.skipif(VERSION < (2, 0), reason="torch.func came with PyTorch 2.0")
def test_transforms_are_an_error(layer, inputs):
    x, coordinates = inputs
    for transformed in (
        torch.func.vmap(lambda x: layer(x[None], coordinates)),
        torch.func.grad(lambda x: layer(x, coordinates).sum()),
        torch.func.jacfwd(lambda x: layer(x, coordinates).sum()),
    ):
        with pytest.raises(RuntimeError, match="fused = False"):
            transformed(x)
    # Other parameters are no transform.
    other = {name: 0.5 * p for name, p in layer.named_parameters()}
    found = torch.func.functional_call(layer, other, (x, coordinates))
    assert same(found, torch.func.functional_call(composed(layer), other, (x, coordinates)))


def test_gradients_in_batches_are_an_error(layer, inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    y = layer(x, coordinates)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(y, x, torch.ones(2, *y.shape), is_grads_batched=True)


@pytest.mark.skipif(
    VERSION < (2, 1) or sys.version_info >= (3, 15), reason="this PyTorch has no torch.compile that runs here"
)
def test_compiled_programs(layer, inputs):
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    outer = nn.Linear(8, 8)
    program = torch.compile(lambda x: outer(layer(torch.sin(x), coordinates)), backend="eager")
    y = program(x)
    expected = outer(composed(layer)(torch.sin(x), coordinates))
    assert same(y, expected)
    assert same(*(torch.autograd.grad(y.pow(2).sum(), x)[0] for y in (y, expected)))
    with torch.no_grad():
        assert same(program(2 * x), outer(composed(layer)(torch.sin(2 * x), coordinates)))


def test_inputs_that_do_not_lie_row_by_row(layer, inputs):
    x, coordinates = inputs
    y = layer(x, coordinates)
    turned = x.transpose(0, 2).contiguous().transpose(0, 2)
    assert not turned.is_contiguous() and torch.equal(layer(turned, coordinates), y)
    assert torch.equal(
        layer(torch.cat([x, x], 1)[:, ::2][:, :20], coordinates),
        layer(torch.cat([x[:, ::2], x[:, ::2]], 1), coordinates),
    )
    assert torch.equal(layer(-torch.complex(x, -x).conj().imag, coordinates), layer(-x, coordinates))
    spread = layer(x[:1].expand(3, -1, -1), coordinates)
    assert torch.equal(spread[0], spread[2])
    # A gradient that is one number, spread.
    y.sum().backward()
    assert same(layer.ff.lr2.bias.grad, torch.full((8,), 60.0))


def test_inputs_stay_as_they_are(layer, inputs):
    x, coordinates = (t.clone() for t in inputs)
    y = layer(x, coordinates)
    y.pow(2).sum().backward()
    assert torch.equal(x, inputs[0]) and torch.equal(coordinates, inputs[1])
    # What was handed out is nobody else's.
    kept = y.detach().clone()
    layer(2 * x, coordinates)
    assert torch.equal(y.detach(), kept)


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_repeats_with_the_seed(inputs, fused):
    layer = gt.EncoderLayer(8, dropout=0.5)
    layer.fused = fused

    def draw(seed):
        torch.manual_seed(seed)
        return [layer(*inputs) for _ in range(2)]

    first, again, other = draw(5), draw(5), draw(6)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], other[0])
    layer.eval()
    assert torch.equal(*draw(5))


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    layer = gt.EncoderLayer(8, coordinates=0, dropout=0.5, gain=1.0)
    x = torch.randn(1, 50, 8)
    with torch.no_grad():
        # What is left is x and the attention behind its mask: a network behind it is not linear.
        layer.ff.lr2.weight.zero_()
        layer.ff.lr2.bias.zero_()
        mean = torch.stack([layer(x) for _ in range(1000)]).mean(0)
        expected = layer.eval()(x)
    # A mask of rate 1/2 has deviation 1 about its mean 1: five standard errors of 1000 masks.
    assert ((mean - expected).abs() <= 5 * (expected - x).abs() / 1000**0.5 + 1e-5).all()


def test_checkpointing_computes_the_same(inputs):
    from torch.utils.checkpoint import checkpoint

    layer = gt.EncoderLayer(8, dropout=0.3)
    x, coordinates = inputs[0].requires_grad_(), inputs[1]
    torch.manual_seed(3)
    (plain,) = torch.autograd.grad(layer(x, coordinates).sum(), x)
    torch.manual_seed(3)
    (again,) = torch.autograd.grad(checkpoint(layer, x, coordinates, use_reentrant=False).sum(), x)
    assert torch.equal(plain, again)


def replicate(module, values, prefix=""):
    replica = module._replicate_for_data_parallel()
    for name in module._parameters:
        setattr(replica, name, values[prefix + name])
    for name, child in module._modules.items():
        replica._modules[name] = replicate(child, values, f"{prefix}{name}.")
    return replica


def test_threads_and_replicas(layer, inputs):
    x, coordinates = inputs
    y = layer(x, coordinates)
    y.sum().backward()
    gradient = layer.attn.fc.weight.grad.clone()
    # What DataParallel gives to the threads of its devices: modules whose parameters are tensors.
    doubled = {name: 2 * p for name, p in layer.named_parameters()}
    replica = replicate(layer, doubled)
    z = replica(x, coordinates)
    assert torch.equal(z, torch.nn.utils.stateless.functional_call(layer, doubled, (x, coordinates)))
    (found,) = torch.autograd.grad(z.sum(), layer.ff.lr2.bias)
    assert same(found, torch.full((8,), 120.0))

    def work(i):
        module = copy.deepcopy(layer) if i % 2 else layer
        module(x, coordinates)
        z = module(x, coordinates)
        return z.detach(), torch.autograd.grad(z.sum(), module.attn.fc.weight)[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for z, found in pool.map(work, range(40)):
            assert torch.equal(z, y.detach()) and torch.equal(found, gradient)


def test_the_number_of_threads_changes_no_bit(layer, inputs):
    threads = gk.num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            gk.set_num_threads(count)
            y = layer(*inputs)
            found.append([y.detach(), *torch.autograd.grad(y.pow(2).sum(), list(layer.parameters()))])
    finally:
        gk.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))


def test_parameters_that_are_computed(layer, inputs):
    """As replicas and parametrised modules have them."""
    x, coordinates = inputs
    from torch.nn.utils import parametrize

    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(layer.ff.lr1, "weight", Doubled())
    plain = composed(layer)
    for module in (layer, plain):
        module(x, coordinates).pow(2).mean().backward()
    found, expected = (m.ff.lr1.parametrizations.weight.original.grad for m in (layer, plain))
    assert same(found, expected)


def test_copies_files_and_state_dicts(layer, inputs):
    y = layer(*inputs)
    assert torch.equal(copy.deepcopy(layer)(*inputs), y)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(*inputs), y)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded = torch.load(file) if VERSION < (2, 0) else torch.load(file, weights_only=False)
    assert torch.equal(loaded(*inputs), y)
    other = gt.EncoderLayer(8, heads=2)
    assert not torch.equal(other(*inputs), y)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(*inputs), y)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(gt.EncoderLayer(8, heads=2, hidden=5).state_dict())


def test_a_layer_trains_in_a_module_of_others(inputs):
    torch.manual_seed(0)

    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.encoder_layers, self.last = nn.Linear(1, 8), gt.Encoder(2, 8), nn.Linear(8, 1)

        def forward(self, x, coordinates):
            return self.last(self.encoder_layers(self.lift(x), coordinates))

    program = Program()
    assert "encoder_layers.1.attn.norm_K.0.weight" in program.state_dict()
    optimizer = torch.optim.Adam(program.parameters(), lr=1e-2)
    x = torch.randn(4, 20, 1)
    losses = []
    for _ in range(30):
        loss = (program(x, inputs[1]) - 3 * x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


ERRORS = [
    (lambda: gt.EncoderLayer(8, heads=3), "heads"),
    (
        lambda: gt.EncoderLayer(8, attention="cosine"),
        "expected galerkin | fourier | linear | softmax, found 'cosine'",
    ),
    (lambda: gt.EncoderLayer(8, activation="tanh"), "expected none | relu | silu | gelu, found 'tanh'"),
    (lambda: gt.EncoderLayer(8, norm="none"), "norm"),
    (lambda: gt.EncoderLayer(8, dropout=1.0), "dropout = 1"),
    (lambda: gt.EncoderLayer(8, eps=-1.0), "eps"),
    (lambda: gt.EncoderLayer(0), "features: expected 1 or more, found 0"),
    (lambda: gt.Encoder(0, 8), "layers: expected 1 or more, found 0"),
    (lambda: gt.SpectralConv1d(3, 4, 0), "modes"),
    (lambda: gt.Transformer1d(modes=0), "modes"),
    (lambda: gt.Transformer2d(fine=10, coarse=20), "10"),
    (lambda: gt.Fno(periodic=[True] * 3), "found fno on 3 axes"),
    (
        lambda: gt.EncoderLayer(8)(torch.rand(2, 5, 7), torch.rand(5, 1)),
        r"x: expected shape (batch, points, 8), with something in it, found (2, 5, 7)",
    ),
    (lambda: gt.EncoderLayer(8)(torch.rand(0, 5, 8), torch.rand(5, 1)), "found (0, 5, 8)"),
    (lambda: gt.EncoderLayer(8)(torch.rand(5, 8), torch.rand(5, 1)), "found (5, 8)"),
    (lambda: gt.EncoderLayer(8)(torch.rand(2, 5, 8)), "coordinates: expected shape (2, 5, 1), found none"),
    (lambda: gt.EncoderLayer(8)(torch.rand(2, 5, 8), torch.rand(5, 2)), "found (5, 2)"),
    (lambda: gt.EncoderLayer(8)(torch.rand(2, 5, 8), torch.rand(3, 5, 1)), "found (3, 5, 1)"),
    (lambda: gt.EncoderLayer(8, coordinates=0)(torch.rand(2, 5, 8), torch.rand(5, 1)), "expected none"),
    (
        lambda: gt.EncoderLayer(8)(torch.rand(2, 5, 8), torch.rand(5, 1), torch.rand(4)),
        "weights: expected shape (2, 5), (1, 5) or (5,), found (4,)",
    ),
    (lambda: gt.SpectralConv1d(3, 4, 5)(torch.rand(2, 7, 3)), "for 5 modes, found (7,)"),
    (lambda: gt.SpectralConv2d(3, 4, 5)(torch.rand(2, 4, 9, 3)), "for 5 modes, found (4, 9)"),
    (lambda: gt.SpectralConv2d(3, 4, 5)(torch.rand(2, 9, 3)), "found (2, 9, 3)"),
    (lambda: gt.Transformer1d(modes=8, width=8)(torch.rand(2, 10, 1)), "modes"),
    (lambda: gt.Transformer1d(modes=8, width=8)(torch.rand(2, 10, 2)), "found (2, 10, 2)"),
    (
        lambda: gt.attention(torch.rand(2, 5, 8), {}),
        "parameters: expected linears.0.weight and others, found none",
    ),
    (
        lambda: gt.attention(torch.rand(2, 5, 8), dict(gt.GalerkinAttention(8).named_parameters())),
        "not known fc.bias, fc.weight",
    ),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_wrong_sizes_and_words(i):
    wrong, words = ERRORS[i]
    with pytest.raises(ValueError) as error:
        wrong()
    assert words in str(error.value)


def test_parameters_of_another_shape(layer, inputs):
    layer.ff.lr1.weight = nn.Parameter(torch.rand(8, 16))
    for fused in (True, False):
        layer.fused = fused
        with pytest.raises(ValueError, match=r"0.ff.lr1.weight: expected shape \(16, 8\), found \(8, 16\)"):
            layer(*inputs)


def test_the_package_does_without_pytorch():
    words = "import sys; sys.modules['torch'] = None; import galerkin; print('torch' in dir(galerkin))"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout == "False\n"


def test_cooperation_changes_no_number(layer, inputs):
    y = layer(*inputs)
    done = gt.cooperate()
    assert done is gt.cooperate() and isinstance(done, bool)
    assert torch.equal(layer(*inputs), y)
    assert torch.ones(1 << 18).sum() == 1 << 18
