#!/usr/bin/env python3
"""Lockstep beside PyTorch on this machine's GPU, and beside the floor that the GPU's libraries leave.

    bench/peers/compare_gpu.py build/release/lockstep [--models smol-1.7b,llama-350m] [--steps 20] [--skip-peer]
                               [--skip-floor] [--python PYTHON] [--set memory.recompute=none]

The programs take turns, a process each. PyTorch: torch_gpu.py, compiled. Lockstep: `train` in bf16 with fp32 masters, with
the fastest kernels (deterministic = false) and with those that give the same bits in every run; a step is the median of
the last steps' step_ms in metrics.jsonl, memory is the ledger's peak and what the driver and libraries hold beside it.
The floor is `lockstep bench`'s, measured with the same settings. A row that fails says why, and the others go on.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

# seq, global_batch, and settings of lockstep's own for the model.
ROWS = {
    "smol-1.7b": (2048, 8, ["memory.recompute=elementwise"]),
    "llama-350m": (1024, 16, ["memory.recompute=none"]),
    "llama-7b-4l": (4096, 4, ["memory.recompute=none"]),
    "llama-1b": (32768, 1, ["memory.recompute=projections", "memory.recompute_blocks=8"]),
}
WARM_UP = 5  # steps: code loads, graphs are made, clocks settle
MODES = {"fastest": "false", "same bits": "true"}


class Failed(Exception):
    pass


def output_of(command, limit=1800):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        raise Failed(f"exit {done.returncode}: {lines[-1][:300]}")
    return done.stdout


def torch(python, model, steps):
    seq, batch, _ = ROWS[model]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_gpu.py")
    lines = output_of([python, script, model, str(seq), str(batch), "--steps", str(steps)]).splitlines()
    return json.loads(lines[-1])


def settings_of(model, deterministic, more):
    seq, batch, own = ROWS[model]
    chosen = [f"model.preset={model}", "data.example=false", "data.synthetic.vocabulary=4096", "data.synthetic.order=1",
              "data.eval_share=0", f"data.seq={seq}", f"train.global_batch={batch}", "train.eval_every=0",
              "train.save_every=0", "train.save_last=false", f"train.deterministic={deterministic}", "optim.warmup=0",
              "optim.lr=1e-4", "precision.compute=bf16", "run.device=cuda", *own, *more]
    return [word for setting in chosen for word in ("--set", setting)]


def number_after(pattern, text):
    found = re.search(pattern, text)
    return int(found.group(1).replace(",", "")) if found else None


def lockstep(program, model, deterministic, steps, more):
    seq, batch, _ = ROWS[model]
    with tempfile.TemporaryDirectory() as folder:
        text = output_of([program, "train", "--out", f"{folder}/run", *settings_of(model, deterministic, more),
                          "--set", f"train.steps={steps + WARM_UP}"])
        with open(f"{folder}/run/metrics.jsonl") as lines:
            records = [json.loads(line) for line in lines][WARM_UP:]
    ms = statistics.median(record["step_ms"] for record in records)
    held = number_after(r"memory: .* predicted, ([\d,]+) measured", text)
    if held is None:
        raise Failed("train prints no line of memory")
    return {"ms": ms, "tok_s": seq * batch / ms * 1e3, "mfu": statistics.median(r["mfu"] or 0 for r in records),
            "peak_gib": held / 2**30,
            "outside_gib": (number_after(r"driver and libraries: .* predicted, ([\d,]+) measured", text) or 0) / 2**30}


def floor(program, model, deterministic, more):
    items = json.loads(output_of([program, "bench", "--json", *settings_of(model, deterministic, more)]))
    by_name = {item["name"]: item for item in items}
    return {"ms": by_name["library_floor"]["value"]}


def attempt(what, call, *arguments):
    try:
        return call(*arguments)
    except (Failed, KeyError, ValueError, OSError, statistics.StatisticsError) as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def cells(name, who, run):
    if run is None:
        return f"| {name} | {who} | failed | | | | | | |"
    memory = f"{run['peak_gib']:.1f}" + (f" + {run['outside_gib']:.1f}" if "outside_gib" in run else "")
    return f"| {name} | {who} | {run['ms']:.1f} | {run['tok_s']:.0f} | {run['mfu'] * 100:.1f}% | {memory} |"


def show(name, peer, ours, floors):
    if peer is not False:
        print(cells(name, "PyTorch", peer) + (" | | |" if peer else ""))
    for mode, run in ours.items():
        row = cells(name, f"lockstep, {mode}", run)
        if run:
            ratio = f"{peer['ms'] / run['ms']:.2f}" if peer else ""
            memory = f"{run['peak_gib'] / peer['peak_gib']:.2f}" if peer else ""
            least = floors.get(mode)
            row += f" {ratio} | {memory} | " + (f"{least['ms']:.1f}, {run['ms'] / least['ms']:.2f} |" if least else "|")
        print(row, flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--models", default=",".join(ROWS))
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--skip-peer", action="store_true")
    arguments.add_argument("--skip-floor", action="store_true")
    arguments.add_argument("--python", default=sys.executable, help="that has PyTorch")
    arguments.add_argument("--set", action="append", default=[], help="a setting of lockstep's, over the table's")
    s = arguments.parse_args()
    models = s.models.split(",")
    if unknown := [model for model in models if model not in ROWS]:
        sys.exit(f"no such model: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    print("| model | | step ms | tokens/s | MFU | GiB | speed to PyTorch's | memory to PyTorch's | floor ms, step to it |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in models:
        seq, batch, _ = ROWS[model]
        peer = False if s.skip_peer else attempt(f"{model}, PyTorch", torch, s.python, model, s.steps)
        ours, floors = {}, {}
        for mode, deterministic in MODES.items():
            what = f"{model}, {mode}"
            ours[mode] = attempt(what, lockstep, s.program, model, deterministic, s.steps, s.set)
            if not s.skip_floor:
                floors[mode] = attempt(f"{what}, floor", floor, s.program, model, deterministic, s.set)
        show(f"{model} {seq}x{batch}", peer, ours, floors)


if __name__ == "__main__":
    main()
