# %% [markdown]
# # Fused layers in a training loop of PyTorch
#
# `galerkin.torch` has the layers of Galerkin transformers as modules of PyTorch. Forward and backward pass of
# a layer, a stack or a whole network are one call of compiled code each; everything else, loss, optimiser and
# loop, is PyTorch as you know it.

# %%
import copy
import time

import matplotlib.pyplot as plt
import torch

import galerkin as gk
import galerkin.torch

# PyTorch's threads wait for work by turning in circles, on the cores that galerkin's need. This lets them
# sleep.
galerkin.torch.cooperate()
torch.manual_seed(0)

# %% [markdown]
# A small dataset: Burgers' equation, from the velocity at the beginning to that at time 1.

# %%
data = gk.generate("burgers", samples=72, grid=256, seed=1, progress=False)
x = torch.from_numpy(data.inputs)[:, ::2].view(72, 128, 1)
u = torch.from_numpy(data.targets)[:, ::2].view(72, 128, 1)
train, valid = slice(0, 64), slice(64, 72)

# %% [markdown]
# The paper's network, smaller. `fused` is what the two trainings differ in: with `fused = False` the same
# modules are composed of PyTorch's own operations, which is also what happens on a graphics card or in
# float64.

# %%
network = galerkin.torch.Transformer1d(width=32, layers=2, channels=16, modes=12)


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return ((found - exact).norm(dim=(1, 2)) / exact.norm(dim=(1, 2))).mean()


def training(fused: bool, epochs: int = 10) -> tuple[list[float], float, torch.nn.Module]:
    """Losses by step, seconds, and what has learned."""
    model = copy.deepcopy(network)
    model.fused = fused
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, start = [], time.perf_counter()
    for epoch in range(epochs):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(8):
            loss = relative_error(model(x[train][batch]), u[train][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, time.perf_counter() - start, model.eval()


fused, seconds, model = training(fused=True)
composed, seconds_composed, _ = training(fused=False)
print(f"{len(fused)} steps: {seconds:.1f} s fused, {seconds_composed:.1f} s composed")

# %% [markdown]
# Both curves are the same to rounding. A training lets roundings grow, so that the first steps agree in more
# digits than the last ones.

# %%
for step in (0, 9, 39, 79):
    print(f"step {step:2}: {fused[step]:.7f} fused, {composed[step]:.7f} composed")
apart = max(abs(a - b) / b for a, b in zip(fused, composed))
# Found: 0.0003 to 0.002.
assert apart < 0.005, apart
assert fused[-1] < 0.5 * fused[0]

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.semilogy(fused, label="fused")
axes.semilogy(composed, "--", label="composed")
axes.set_xlabel("step")
axes.set_ylabel("loss")
axes.legend()
# %% [markdown]
# What was learned here is a run like any other: `galerkin.load` predicts with it, and so does the command.

# %%
model.to_run("from_torch")
with torch.no_grad():
    print(f"error of new samples: {relative_error(model(x[valid]), u[valid]):.3f}")
    again = torch.from_numpy(gk.load("from_torch")(x[valid].numpy()))
    assert torch.equal(again, model(x[valid]))

# %% [markdown]
# A layer on its own, with coordinates and quadrature weights of points that lie anywhere, between layers of
# PyTorch:

# %%
points = torch.rand(500, 2).sort(dim=0).values
program = torch.nn.ModuleDict(
    {
        "lift": torch.nn.Linear(3, 32),
        "layers": galerkin.torch.Encoder(3, 32, heads=2, coordinates=2, attention="fourier"),
        "last": torch.nn.Linear(32, 1),
    }
)
values = torch.randn(4, 500, 3)
y = program["last"](program["layers"](program["lift"](values), points, weights=torch.full((500,), 1 / 500)))
y.pow(2).mean().backward()
print(y.shape, program["layers"][0].attn.fc.weight.grad.norm())
