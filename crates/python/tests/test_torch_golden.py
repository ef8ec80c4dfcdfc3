"""`galerkin.torch` computes what the paper's PyTorch code computes: the golden cases of the repository
through its modules.
"""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="galerkin.torch is for those who have PyTorch")

import galerkin.torch as gt  # noqa: E402

CRATES = Path(__file__).resolve().parents[2]
FOLDERS = [CRATES / "kernels/tests/golden", CRATES / "operator/tests/golden"]
EPS = float(np.finfo(np.float32).eps)

pytestmark = pytest.mark.skipif(
    not FOLDERS[0].is_dir(), reason="the golden cases lie in the repository alone"
)


def cases(folder):
    files = sorted(file for root in FOLDERS for file in (root / folder).glob("*.json"))
    return [pytest.param(file, id=file.stem) for file in files]


def read(sidecar):
    """The JSON of a case and its arrays."""
    data = sidecar.with_suffix(".safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        start, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + start : 8 + length + end], "<f4")
        arrays[name] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return json.loads(sidecar.read_text()), arrays


def check(case, arrays, module, *inputs):
    """Values and gradients, fused and composed.

    With [M, δ] of a tensor from its sidecar, δ is how far the golden values are from the truth. Others add
    roundings of their own in an order of their own: 4 δ + 16 ε M, as in the golden cases of the kernels.
    Gradients that vanish by symmetry are compared with the M of the weight beside them.
    """
    zeros = case["gradients_zero_up_to_rounding"]
    parameters = {name[2:]: value for name, value in arrays.items() if name.startswith("p.")}
    module.load_state_dict(parameters, strict=True)
    module.eval()
    for fused in (True, False):
        module.fused = fused
        module.zero_grad()
        x = arrays["in.x"].clone().requires_grad_()
        y = module(x, *inputs)
        y.backward(arrays["in.cotangent"].view_as(y))
        found = {"out.y": y.detach(), "g.in.x": x.grad}
        found |= {f"g.{name}": p.grad for name, p in module.named_parameters()}
        for name, value in found.items():
            exact = arrays[name].view_as(value)
            largest, golden = case["rounding"]["values"][name]
            if name in zeros:
                largest = max(
                    largest, case["rounding"]["values"].get(name.replace("bias", "weight"), [0, 0])[0]
                )
            off = (value - exact).abs().max().item()
            assert off <= 4 * golden + 16 * EPS * largest, (name, fused, off, golden, largest)


def attention_words(hyper):
    return {"heads": hyper["n_head"], "coordinates": hyper["pos_dim"]}


@pytest.mark.parametrize("file", [case for case in cases("attention") if "causal" not in case.id])
def test_attention(file):
    case, arrays = read(file)
    hyper = case["hyper_parameters"]
    norm = hyper["norm_type"] if hyper["norm"] else "none"
    words = attention_words(hyper) | {"norm": norm, "eps": hyper["eps"]}
    module = gt._Attention(hyper["attention_type"], hyper["d_model"], **words)
    check(case, arrays, module, arrays.get("in.pos"))


@pytest.mark.parametrize("file", cases("encoder_layer"))
def test_encoder_layer(file):
    case, arrays = read(file)
    hyper = case["hyper_parameters"]
    after = hyper["layer_norm"]
    inside = hyper["attn_norm"] if hyper["attn_norm"] is not None else not after
    # Without any norm the paper's code switches on the one inside.
    inside = inside or not after
    module = gt.EncoderLayer(
        hyper["d_model"],
        **attention_words(hyper),
        hidden=hyper["dim_feedforward"],
        attention=hyper["attention_type"],
        activation=hyper["activation_type"] if hyper["activation_type"] in ("silu", "gelu") else "relu",
        norm=hyper.get("norm_type") or "layer" if inside else "none",
        norm_after=after,
        eps=hyper.get("norm_eps") or 1e-5,
        minus=hyper.get("residual_type") not in ("add", "plus", None),
    )
    check(case, arrays, module, arrays.get("in.pos"))


@pytest.mark.parametrize("file", [case for case in cases("spectral") if "flat" not in case.id])
def test_spectral_convolution(file):
    case, arrays = read(file)
    hyper = case["hyper_parameters"]
    make = gt.SpectralConv1d if case["kind"] == "spectral_conv1d" else gt.SpectralConv2d
    inputs, outputs = arrays["in.x"].shape[-1], arrays["out.y"].shape[-1]
    check(case, arrays, make(inputs, outputs, hyper["modes"], activation=hyper["activation"]))


@pytest.mark.parametrize("file", [case for case in cases("model") if case.id.startswith("ex1")])
def test_transformer_on_a_line(file):
    case, arrays = read(file)
    hyper, n = case["hyper_parameters"], arrays["in.x"].shape[1]
    # The paper's code takes its coordinates from outside: those of a closed line.
    assert torch.equal(arrays["in.pos"][0, :, 0], torch.linspace(0, 1, n)) or torch.allclose(
        arrays["in.pos"][0, :, 0], torch.linspace(0, 1, n), atol=1e-7
    )
    module = gt.Transformer1d(
        layers=hyper["num_encoder_layers"],
        width=hyper["n_hidden"],
        heads=hyper["n_head"],
        hidden=hyper["dim_feedforward"],
        attention=hyper["attention_type"],
        channels=hyper["freq_dim"],
        modes=hyper["fourier_modes"],
        convolutions=hyper["num_regressor_layers"],
        closed_coordinates=True,
        norm="layer" if hyper["attn_norm"] else "none",
        norm_after=hyper["layer_norm"],
    )
    check(case, arrays, module)


def normalised(config, arrays, case):
    """A network with the case's normaliser of targets."""
    normalizer = gt._Normalizer(arrays["in.normalizer.mean"].clone(), arrays["in.normalizer.std"].clone())
    module = gt.Transformer2d._of(config, [None, normalizer])
    arrays["p.normalizer.mean"], arrays["p.normalizer.std"] = normalizer.mean, normalizer.std
    return module


@pytest.mark.parametrize(
    "file", [case for case in cases("model") if case.id.startswith("ex2") and "value" not in case.id]
)
def test_transformer_on_a_square(file):
    case, arrays = read(file)
    hyper = case["hyper_parameters"]
    n, coarse = arrays["in.x"].shape[1], arrays["out.stage.downscaler"].shape[1]
    config = gt.Transformer2d(
        fine=n,
        coarse=coarse,
        layers=hyper["num_encoder_layers"],
        width=hyper["n_hidden"],
        heads=hyper["n_head"],
        hidden=hyper["dim_feedforward"],
        attention=hyper["attention_type"],
        channels=hyper["freq_dim"],
        modes=hyper["fourier_modes"],
        convolutions=hyper["num_regressor_layers"],
        eps=hyper["norm_eps"],
    ).network
    config["lift"]["by_factor"] = not isinstance(hyper["downscaler_size"][0], list)
    check(case, arrays, normalised(config, arrays, case))


@pytest.mark.parametrize("file", [case for case in cases("model") if case.id.startswith("ex3")])
def test_transformer_to_the_coarse_grid(file):
    case, arrays = read(file)
    hyper = case["hyper_parameters"]
    n, coarse = arrays["in.x"].shape[1], arrays["out.y"].shape[1]
    config = gt.Transformer2d(
        fine=n,
        coarse=coarse,
        layers=hyper["num_encoder_layers"],
        width=hyper["n_hidden"],
        heads=hyper["n_head"],
        hidden=hyper["dim_feedforward"],
        attention=hyper["attention_type"],
        boundary="free",
        eps=hyper["norm_eps"],
    ).network
    config["lift"]["activation"] = "silu"
    config["output"] = "coarse"
    config["decoder"] = {
        "kind": "pointwise",
        "coordinates": True,
        "layers": 1,
        "activation": "silu",
        "dropout": 0.05,
    }
    check(case, arrays, normalised(config, arrays, case))


@pytest.mark.parametrize("name", ["ex1_fourier", "ex1_galerkin"])
def test_state_dicts_of_the_papers_code_load(name):
    folder = FOLDERS[1] / "checkpoint"
    hyper = json.loads((folder / f"{name}.json").read_text())["hyper_parameters"]
    module = gt.Transformer1d(
        layers=hyper["num_encoder_layers"],
        width=hyper["n_hidden"],
        heads=hyper["n_head"],
        hidden=hyper["dim_feedforward"],
        attention=hyper["attention_type"],
        channels=hyper["freq_dim"],
        modes=hyper["fourier_modes"],
        closed_coordinates=True,
    )
    module.load_state_dict(torch.load(folder / f"{name}.pt"))
    x, expected = (torch.from_numpy(np.load(folder / f"{name}.{part}.npy")) for part in ("x", "pred"))
    with torch.no_grad():
        found = module.eval()(x)
    # Five layers and as many roundings as the golden models have.
    assert (found - expected).abs().max() <= 128 * EPS * expected.abs().max()
