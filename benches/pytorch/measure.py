"""One measurement of one network, in a process of its own.

    python measure.py infer --weights w.safetensors --input x.npy --output y.npy
    python measure.py train --weights w.safetensors --input x.npy --target t.npy
    python measure.py gradients --weights w.safetensors --input x.npy --target t.npy --output g.safetensors
    python measure.py versions

prints one line of JSON: seconds of every repetition after one to warm up, the largest memory the process had before the first and at the
end, in megabytes. A training step is forward pass, mean square of the difference to the target, backward pass, Adam step, with
dropout; `infer` has neither dropout nor gradients and writes the output; `gradients` writes those of one step without dropout and takes
no time. `galerkin bench pytorch` calls this; its own half has the same words.
"""

import argparse
import gc
import json
import platform
import resource
import sys
import time

import numpy as np
import torch
from safetensors.torch import save_file

import models

OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "unable to mmap")


def main() -> None:
    args = arguments()
    if args.mode == "versions":
        print(json.dumps({"python": platform.python_version(), "torch": torch.__version__}))
        return
    torch.set_num_threads(args.threads)
    if args.memory:
        limit = args.memory << 20
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        print(json.dumps(measure(args)))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
            print(json.dumps({"out_of_memory": True}))
            return
        raise


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["infer", "train", "gradients", "versions"])
    parser.add_argument("--weights", help="weight file of galerkin, safetensors")
    parser.add_argument("--input", help="input of the network, npy")
    parser.add_argument("--target", help="what the output is compared with in training, npy")
    parser.add_argument("--output", help="file to write: npy, or safetensors for gradients")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="repeat for so long, and at least twice")
    parser.add_argument("--memory", type=int, default=0, help="megabytes the process may have")
    parser.add_argument("--attention", choices=["fast", "reassociated", "authors"], default="fast", help="see models.load")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> dict:
    network = models.load(args.weights, args.attention)
    x = torch.from_numpy(np.load(args.input))
    target = torch.from_numpy(np.load(args.target)) if args.target else None
    model = torch.compile(network) if args.compile else network
    gc.collect()
    start = peak_megabytes()
    if args.mode == "gradients":
        network.eval()
        loss(model(x), target).backward()
        save_file({name: p.grad.contiguous() for name, p in network.named_parameters()}, args.output)
        seconds = []
    elif args.mode == "train":
        seconds = train(network, model, x, target, args.seconds)
    else:
        seconds, y = infer(network, model, x, args.seconds)
        if args.output:
            np.save(args.output, y.contiguous().numpy())
    return {"seconds": seconds, "start_mb": start, "peak_mb": peak_megabytes()}


def train(network: torch.nn.Module, model, x: torch.Tensor, target: torch.Tensor, budget: float) -> list[float]:
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), target).backward()
        optimizer.step()

    return repeat(step, budget)


def infer(network: torch.nn.Module, model, x: torch.Tensor, budget: float) -> tuple[list[float], torch.Tensor]:
    network.eval()
    with torch.inference_mode():
        y = model(x)
        seconds = repeat(lambda: model(x), budget, warm=True)
    return seconds, y


def loss(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(y, target)


def repeat(step, budget: float, warm: bool = False) -> list[float]:
    """Seconds of repetitions, until their sum is the budget."""
    if not warm:
        step()
    seconds: list[float] = []
    while len(seconds) < 2 or sum(seconds) < budget:
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def peak_megabytes() -> float:
    """The most memory this process ever had. Of a child, ru_maxrss may be its parent's, which Linux's own count never is."""
    try:
        with open("/proc/self/status") as status:
            kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
        return int(kilobytes) / 1024
    except OSError:
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    main()
