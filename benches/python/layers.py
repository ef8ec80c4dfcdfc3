"""Fused layers and networks of `galerkin.torch` beside the same made of PyTorch's operations, in one process.

    python benches/python/layers.py --threads 2

Both have the same parameters and inputs, and outputs and gradients are compared before anything is measured.
A round is a block of passes of one and a block of the other, or one pass each "in turn"; the ratio is theirs
over ours, of the medians of all passes, and the spread is that of the rounds' own ratios, from the first to
the third quartile. A training step is forward pass, relative L2 loss, backward pass and a step of Adam. Rows
below their floor, and rows that lose, are said at the end, and then the exit code is 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import time
from typing import Callable, Iterator

import torch
from torch import Tensor, nn

import galerkin
import galerkin.torch

#: Paper's network for Burgers' equation: batch by points.
BATCHES = {512: 8, 2048: 8, 8192: 4}
#: Encoder layer of that network.
BATCH, POINTS, FEATURES = 8, 2048, 96


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--threads", type=int, default=os.cpu_count(), help="of PyTorch and of galerkin alike")
    words.add_argument("--rounds", type=int, default=9)
    words.add_argument("--passes", type=int, default=5, help="in a block")
    words.add_argument("--only", default="", help="rows whose name has this in it")
    words.add_argument(
        "--spin",
        action="store_true",
        help="leave PyTorch's threads as they are, without galerkin.torch.cooperate()",
    )
    words.add_argument("--json", action="store_true", help="a line of JSON for every row instead of a table")
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    galerkin.set_num_threads(given.threads)
    cooperates = not given.spin and galerkin.torch.cooperate()
    if not given.json:
        machine = platform.processor() or platform.machine()
        print(f"galerkin {galerkin.__version__}, PyTorch {torch.__version__}, {machine}, ", end="")
        called = "called" if cooperates else "not called"
        print(f"{given.threads} threads each, cooperate() {called}, load {os.getloadavg()[0]:.1f}\n")
        print(f"| {'row':<40} | ours, ms | theirs, ms | ratio |    spread    | floor |")
        print(f"| {'-' * 40} | -------: | ---------: | ----: | :----------: | ----: |")
    lost = []
    for name, floor, passes, ours, theirs in rows(given.passes):
        if given.only not in name:
            continue
        row = measured(ours(), theirs(), given.rounds, passes)
        low, high = row["spread"]
        if given.json:
            print(json.dumps({"row": name, "floor": floor, **row}), flush=True)
        else:
            line = f"| {name:<40} | {row['ours']:8.1f} | {row['theirs']:10.1f} | {row['ratio']:5.2f} |"
            print(line, f"{low:5.2f} – {high:4.2f} | {floor:5.1f} |", flush=True)
        if row["ratio"] < max(floor, 1.0):
            verdict = "slower than PyTorch" if row["ratio"] < 1 else f"below its floor of {floor}"
            lost.append(f"{name}: {row['ratio']:.2f}, {verdict}")
    print(*lost, sep="\n")
    raise SystemExit(bool(lost))


Row = tuple[str, float, int, Callable[[], Callable[[], None]], Callable[[], Callable[[], None]]]


def rows(passes: int) -> Iterator[Row]:
    """Name, floor, passes of a block, and what makes a pass of either."""
    torch.manual_seed(0)
    layer = galerkin.torch.EncoderLayer(FEATURES, gain=1.0)
    stack = galerkin.torch.Encoder(4, FEATURES, gain=0.3)
    yield "encoder layer", 2.5, passes, *both(layer, layer_pass)
    yield "encoder layer, in turn", 2.5, 1, *both(layer, layer_pass)
    yield "encoder layer, forward alone", 1.0, passes, *both(layer, forward_pass)
    yield "encoder layer between linear layers", 1.7, passes, *both(Between(layer), layer_pass)
    yield "encoder layer between them, in turn", 1.7, 1, *both(Between(layer), layer_pass)
    yield "four encoder layers, one call", 2.5, passes, *both(stack, layer_pass)
    for kind in ("fourier", "linear"):
        yield (
            f"encoder layer, {kind} attention",
            1.0,
            passes,
            *both(galerkin.torch.EncoderLayer(FEATURES, attention=kind), layer_pass),
        )
    network = galerkin.torch.Transformer1d()
    for points, batch in BATCHES.items():
        yield (
            f"training step, Burgers, {points} points",
            2.0,
            passes,
            *both(network, training_step, batch, points),
        )
    yield "training step, FNO, 2048 points", 1.0, passes, *both(galerkin.torch.Fno(), training_step, 8, 2048)


class Between(nn.Module):
    """An encoder layer between two linear ones."""

    def __init__(self, layer: galerkin.torch.EncoderLayer) -> None:
        super().__init__()
        self.first, self.layer, self.last = (
            nn.Linear(FEATURES, FEATURES),
            layer,
            nn.Linear(FEATURES, FEATURES),
        )

    def forward(self, x: Tensor, coordinates: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x), coordinates))


def both(module: nn.Module, make: Callable, *sizes: int) -> Iterator[Callable[[], Callable[[], None]]]:
    """What makes a pass of the fused module, and of the composed one."""
    for fused in (True, False):
        one = copy.deepcopy(module)
        for part in one.modules():
            if hasattr(part, "fused"):
                part.fused = fused
        yield lambda one=one: make(one, *sizes)


def layer_pass(module: nn.Module) -> Callable[[], tuple[Tensor, Tensor]]:
    x, coordinates, gradient = layer_inputs()
    x.requires_grad_()

    def run() -> tuple[Tensor, Tensor]:
        x.grad = None
        module.zero_grad(set_to_none=True)
        y = module(x, coordinates)
        y.backward(gradient)
        return y.detach(), x.grad

    return run


def forward_pass(module: nn.Module) -> Callable[[], tuple[Tensor]]:
    x, coordinates, _ = layer_inputs()

    @torch.no_grad()
    def run() -> tuple[Tensor]:
        return (module(x, coordinates),)

    return run


def layer_inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    x, gradient = torch.randn(BATCH, POINTS, FEATURES), torch.randn(BATCH, POINTS, FEATURES)
    return x, (torch.arange(POINTS) / POINTS).view(1, POINTS, 1), gradient


def training_step(network: nn.Module, batch: int, points: int) -> Callable[[], tuple[Tensor]]:
    torch.manual_seed(1)
    x, target = torch.randn(batch, points, 1), torch.randn(batch, points, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-5, foreach=True)

    def run() -> tuple[Tensor]:
        y = network(x)
        loss = ((y - target).norm(dim=(1, 2)) / target.norm(dim=(1, 2))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return (y.detach(),)

    return run


def measured(ours: Callable, theirs: Callable, rounds: int, passes: int) -> dict:
    for a, b in zip(ours(), theirs()):
        # Of three million hidden values some lie within a rounding of a ReLU's kink, where the gradient is
        # one thing or another. One of them is 10⁻⁴ of the gradient's norm.
        off = ((a - b).norm() / b.norm()).item()
        assert off <= 1e-3, f"the two do not compute the same: {off:.1e} apart"
    times: dict[Callable, list[float]] = {ours: [], theirs: []}
    ratios = []
    for _ in range(rounds):
        medians = {}
        for run in (ours, theirs):
            block = []
            for _ in range(passes):
                start = time.perf_counter()
                run()
                block.append(1e3 * (time.perf_counter() - start))
            times[run] += block
            medians[run] = statistics.median(block)
        ratios.append(medians[theirs] / medians[ours])
    one, other = (statistics.median(times[run]) for run in (ours, theirs))
    low, _, high = statistics.quantiles(ratios, n=4) if rounds > 1 else (ratios * 3)
    return {"ours": one, "theirs": other, "ratio": other / one, "spread": [low, high]}


if __name__ == "__main__":
    main()
