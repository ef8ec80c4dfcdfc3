"""Trains the network of a run in PyTorch: the same initial weights, samples, batches, loss and schedule, and the same files.

    galerkin bench pytorch --train datasets/burgers --epochs 100 --grid 512 --run runs/pytorch --python venv/bin/python
    python train.py runs/pytorch

The command makes the folder of the run with the folder `pytorch` in it, which has the initial weights and the order of the samples, and then
calls this. Written to the run are `log.jsonl`, `clock.jsonl`, `model.safetensors` and `best.safetensors`, with our names, so that
`galerkin info`, `evaluate` and `plot` take it for any other run. Grids of one axis, as for Burgers' equation. Nothing resumes.
"""

import argparse
import json
import math
import sys
import time
import tomllib
from pathlib import Path
from typing import Iterator

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import models

# A relative loss beyond which training is lost.
DIVERGED = 1e4


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    config = tomllib.loads((args.run / "config.toml").read_text())
    check(config)
    order = json.loads((args.run / "pytorch/order.json").read_text())
    training = Training(args, config, order)
    training.run(order["batches"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder that `galerkin bench pytorch --train` has made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--attention", choices=["fast", "reassociated", "authors"], default="authors", help="see models.load")
    parser.add_argument("--quiet", action="store_true", help="no line per epoch")
    return parser.parse_args()


def check(config: dict) -> None:
    """Ends the program if the run has a setting that is not computed here."""
    data, train, loss = config["data"], config["train"], config["loss"]
    expected = {
        "data.inverse": (data.get("inverse", False), False),
        "data.noise": (data["noise"], 0.0),
        "data.normalize_inputs": (data["normalize_inputs"], "none"),
        "data.normalize_targets": (data["normalize_targets"], "none"),
        "loss.weight": (loss.get("weight", "none"), "none"),
        "train.accumulate": (train["accumulate"], 1),
        "train.average": (train["average"], 0.0),
        "train.augment": (train.get("augment", []), []),
        "schedule.kind": (config["schedule"]["kind"], "one_cycle"),
        "optimizer.kind": (config["optimizer"].get("kind", "adam"), "adam"),
        "optimizer.weight_decay": (config["optimizer"]["weight_decay"], 0.0),
        "network.periodic": (config["network"]["periodic"], [True]),
        "network.inputs and outputs": ([config["network"][side] for side in ("inputs", "outputs")], [1, 1]),
    }
    for name, (found, needed) in expected.items():
        if found != needed:
            sys.exit(f"error: {name}: expected {needed!r}, found {found!r}")


class Training:
    """A training under way."""

    def __init__(self, args: argparse.Namespace, config: dict, order: dict):
        self.run_folder, self.config, self.quiet = args.run, config, args.quiet
        initial = args.run / "pytorch/initial.safetensors"
        with safe_open(initial, "pt") as file:
            self.network_config = file.metadata()["config"]
        self.model = models.load(str(initial), args.attention)
        self.inputs, self.targets, self.slopes = samples(config, order["train"])
        self.validation = samples(config, order["validation"])[:2]
        train, schedule, optimizer = config["train"], config["schedule"], config["optimizer"]
        self.total = sum(len(epoch) for epoch in order["batches"])
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=train["lr"],
            betas=(0.9, optimizer["beta2"]),
            eps=optimizer["eps"],
            fused=True,
        )
        rise = schedule["rise"]
        largest = train["lr"] * (min(1.0, schedule["peak"] * self.total / rise) if rise else 1.0)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=largest,
            total_steps=self.total,
            pct_start=schedule["peak"],
            div_factor=1e4,
            final_div_factor=1e4,
        )
        self.steps, self.best = 0, math.inf
        self.begun = (time.perf_counter(), time.process_time())

    def run(self, batches: list[list[list[int]]]) -> None:
        with open(self.run_folder / "log.jsonl", "w") as log, open(self.run_folder / "clock.jsonl", "w") as clock:
            self.begun = (time.perf_counter(), time.process_time())
            for epoch, places in enumerate(batches, start=1):
                losses = [self.step(np.array(batch), log) for batch in places]
                self.end_epoch(epoch, sum(losses) / len(losses), log)
                self.save("model")
                seconds, cpu_seconds = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
                line = {"step": self.steps, "epoch": epoch, "seconds": seconds, "cpu_seconds": cpu_seconds}
                write(clock, line | {"threads": torch.get_num_threads()})

    def step(self, places: np.ndarray, log) -> float:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        group = self.optimizer.param_groups[0]
        rates = {"lr": group["lr"], "beta1": group["betas"][0]}
        x, u, slopes = (part[places] for part in (self.inputs, self.targets, self.slopes))
        loss = relative_loss(self.model(x), u, slopes, self.config["loss"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["optimizer"]["max_norm"])
        value, norm = loss.item(), norm.item()
        self.steps += 1
        if not (math.isfinite(norm) and value <= DIVERGED):
            write(log, {"step": self.steps, "diverged": True, "loss": str(value), "gradient_norm": str(norm)})
            sys.exit(f"error: diverged in step {self.steps}: loss {value}, norm of the gradient {norm}")
        self.optimizer.step()
        self.schedule.step()
        write(log, {"step": self.steps, "loss": value} | rates | {"gradient_norm": norm})
        return value

    def end_epoch(self, epoch: int, loss: float, log) -> None:
        errors = validation_errors(self.model, *self.validation)
        best = errors.mean() < self.best
        if best:
            self.best = errors.mean()
            self.save("best")
        found = {"mean": errors.mean(), "median": np.median(errors), "max": errors.max()}
        validation = {name: float(value) for name, value in found.items()}
        write(log, {"epoch": epoch, "step": self.steps, "train_loss": loss, "best": bool(best), "validation": validation})
        if not self.quiet:
            per_step = (time.perf_counter() - self.begun[0]) / self.steps
            words = f"loss {loss:.5f}  validation {validation['mean']:.5f}  {1e3 * per_step:.0f} ms a step"
            print(f"epoch {epoch}: {words}", file=sys.stderr, flush=True)

    def save(self, name: str) -> None:
        """The names are ours; the file has no checksum, as files of others have none."""
        arrays = {name: array.contiguous() for name, array in self.model.state_dict().items()}
        path = self.run_folder / f"{name}.safetensors"
        part = path.with_suffix(".part")
        save_file(arrays, part, {"config": self.network_config, "steps": str(self.steps)})
        part.replace(path)


def samples(config: dict, indices: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and derivatives of the targets of some samples on the grid of the run, (samples, points, 1).

    The derivative is a central difference on the dataset's own grid, which is finer, in double precision.
    """
    folder, points = Path(config["data"]["folder"]), config["data"]["grid"]
    inputs, targets = (np.load(folder / name, mmap_mode="r") for name in ("inputs.npy", "targets.npy"))
    with open(folder / "meta.toml", "rb") as meta:
        length = tomllib.load(meta)["domain"]["axes"][0]["length"]
    fine = targets.shape[1]
    stride = fine // points
    u = targets[indices].astype(np.float64)
    slopes = (np.roll(u, -1, axis=1) - np.roll(u, 1, axis=1)) / (2.0 * length / fine)
    parts = (inputs[indices][:, ::stride], targets[indices][:, ::stride], slopes[:, ::stride])
    x, u, slopes = (torch.from_numpy(np.ascontiguousarray(part, dtype=np.float32)) for part in parts)
    config["loss"]["spacing"] = length / points
    return x, u, slopes


def relative_loss(p: Tensor, u: Tensor, slopes: Tensor, how: dict) -> Tensor:
    """The mean over samples of ||p - u|| / ||u|| and of sqrt(gamma h) ||u' - Dp|| / ||u'||."""
    h, eps = how["spacing"], how["eps"] * p.shape[1]
    data = ((p - u).square().sum(1) / (u.square().sum(1) + eps)).sqrt().mean()
    if how["gamma"] == 0.0:
        return data
    differences = (p.roll(-1, 1) - p.roll(1, 1)) / (2.0 * h)
    error = slopes - differences
    if how.get("interior", False):
        error = error[:, 1:-1]
    ratio = error.square().sum(1) / (slopes.square().sum(1) + eps)
    return data + math.sqrt(how["gamma"] * h) * ratio.sqrt().mean()


def validation_errors(model: nn.Module, inputs: Tensor, targets: Tensor) -> np.ndarray:
    """Relative L2 errors of all samples, without dropout."""
    model.eval()
    with torch.inference_mode():
        predictions = torch.cat([model(x) for x in batches_of(inputs)])
    p, u = (values.double().flatten(1).numpy() for values in (predictions, targets))
    return np.sqrt(((p - u) ** 2).sum(1) / (u**2).sum(1))


def batches_of(inputs: Tensor) -> Iterator[Tensor]:
    """Samples that go through the network together: as many as ours takes."""
    size = min(max(32_768 // inputs.shape[1], 1), 64)
    yield from inputs.split(size)


def write(file, line: dict) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
