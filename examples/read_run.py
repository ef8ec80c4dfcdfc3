"""Reads every file of a run and of its dataset with numpy, safetensors and json, and checks that they fit together.

    pip install numpy safetensors
    python examples/read_run.py runs/burgers
    python examples/read_run.py pretrained/burgers

Needs Python 3.11 or newer. The dataset is looked for where config.toml says, or where a second argument says. A published run has the last weights alone.
"""

import json
import sys
import tomllib
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    config = tomllib.loads((run / "config.toml").read_text())
    seen = {"config.toml"}
    print(f"{run}: {config['name']}, grid {config['data']['grid']}, seed {config['train']['seed']}")

    # Weights carry the authors' names and layouts; the config of the network is in the metadata.
    for name in ("model.safetensors", "best.safetensors"):
        if name == "best.safetensors" and not (run / name).exists():
            continue
        weights = load_file(run / name)
        with safe_open(run / name, "numpy") as file:
            metadata = file.metadata()
        network = json.loads(metadata["config"])
        assert all(np.isfinite(array).all() for array in weights.values()), f"{name} has a value that is no number"
        count = sum(array.size for array in weights.values())
        print(f"{name}: {len(weights)} arrays, {count} numbers, after step {metadata.get('steps')}, a {network.get('kind') or network['network']}")
        seen.add(name)

    # A checkpoint has weights and both moments of every parameter, and where the run was.
    for path in sorted((run / "checkpoint").glob("*.safetensors")):
        arrays = load_file(path)
        with safe_open(path, "numpy") as file:
            progress = json.loads(file.metadata()["progress"])
        parameters = {name.split(".")[0] for name in arrays}
        for i in parameters:
            first, second = arrays[f"{i}.first_moment"], arrays[f"{i}.second_moment"]
            assert first.shape == second.shape == arrays[f"{i}.weights"].shape and (second >= 0).all()
        assert progress["steps"] == int(path.stem)
        print(f"checkpoint/{path.name}: {len(parameters)} parameters with their moments")
        seen.add("checkpoint")

    if (run / "normalizer.safetensors").exists():
        normalizer = load_file(run / "normalizer.safetensors")
        assert normalizer["mean"].shape == normalizer["std"].shape and (normalizer["std"] >= 0).all()
        print(f"normalizer.safetensors: mean and std of the inputs, {normalizer['mean'].shape}")
        seen.add("normalizer.safetensors")

    # A line per step, and one per epoch.
    if (run / "log.jsonl").exists():
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "lr" in line]
        epochs = [line for line in lines if "epoch" in line]
        assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
        print(f"log.jsonl: {len(steps)} steps, {len(epochs)} epochs, loss {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}")
        for line in epochs[-1:]:
            print(f"    last validation error {line['validation']['mean']:.5f}")
        seen.add("log.jsonl")

    # How long it took, over all sittings.
    if (run / "clock.jsonl").exists():
        lines = [json.loads(line) for line in (run / "clock.jsonl").read_text().splitlines()]
        assert all(a["step"] <= b["step"] and a["seconds"] <= b["seconds"] for a, b in zip(lines, lines[1:]))
        for line in lines[-1:]:
            print(f"clock.jsonl: {line['seconds']:.1f} s to step {line['step']} since step {line.get('since', 0)}, {line['threads']} threads")
        seen.add("clock.jsonl")

    if (run / "metrics.json").exists():
        for found in json.loads((run / "metrics.json").read_text())["evaluations"]:
            error = found["relative_l2"]["mean"]
            subject = f"{found['samples']} samples of {found.get('dataset')}, {found.get('weights')} weights"
            print(f"metrics.json: relative L2 error {error:.5f} on grid {found['grid']}, {subject}")
        seen.add("metrics.json")

    # The run's copy of what the dataset says of itself, and the dataset.
    meta = tomllib.loads((run / "dataset.toml").read_text())
    seen.add("dataset.toml")
    folder = Path(sys.argv[2] if len(sys.argv) == 3 else config["data"]["folder"])
    if folder.exists():
        inputs, targets = (np.load(folder / name, mmap_mode="r") for name in ("inputs.npy", "targets.npy"))
        assert meta == tomllib.loads((folder / "meta.toml").read_text()), "the dataset is another one"
        assert inputs.shape[0] == targets.shape[0] == meta["samples"] and inputs.dtype == targets.dtype == np.float32
        print(f"{folder}: inputs {inputs.shape}, targets {targets.shape}")
    else:
        print(f"{folder}: not here")

    # Which samples the run has seen: indices of generated ones, checksums of imported ones.
    if (run / "samples.json").exists():
        samples = json.loads((run / "samples.json").read_text())
        assert len(samples["train"]) == config["data"]["train"] and not set(samples["train"]) & set(samples["validation"])
        print(f"samples.json: {len(samples['train'])} to train, {len(samples['validation'])} to validate")
        seen.add("samples.json")

    # Pictures, words and TensorBoard's files are for others.
    left = {path.name for path in run.iterdir()} - seen - {"figures", "tensorboard", "pytorch", "README.md", "samples.png", ".lock"}
    assert not left, f"files not read: {left}"
    print("every file was read")


if __name__ == "__main__":
    main()
