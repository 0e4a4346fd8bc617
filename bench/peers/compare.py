#!/usr/bin/env python3
"""Lockstep beside PyTorch on this machine's CPU: the models bench-a and bench-b, fp32, two threads.

    apt-get install python3-torch libopenblas0-openmp libblis4-openmp libtcmalloc-minimal4
    bench/peers/compare.py build/release/lockstep [--rounds 3] [--models ab] [--ranks 2]

With --ranks 2 both have two ranks of one thread, each on a core: lockstep's are threads, PyTorch's are processes under
DistributedDataParallel over gloo; lockstep with one rank of two threads is beside them. The two programs take turns, so that both meet the same noise; PyTorch runs with each OpenMP BLAS that is installed and its
best counts. Tokens/s are medians over steps, then over rounds; memory is the process's peak resident size.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SIZES = {"a": (256, 8), "b": (512, 4)}  # seq, global_batch


def torch(model, blas, steps, ranks):
    threads = str(2 // ranks)
    environment = dict(os.environ, OMP_NUM_THREADS=threads, BLIS_NUM_THREADS=threads, LD_LIBRARY_PATH=f"{LIBRARIES}/{blas}",
                       LD_PRELOAD=f"{LIBRARIES}/libtcmalloc_minimal.so.4")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_cpu.py")
    out = subprocess.run(["/usr/bin/python3", script, "--model", model, "--steps", str(steps),
                          "--threads", threads, "--ranks", str(ranks)], env=environment,
                         capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def lockstep(program, model, steps, ranks):
    seq, batch = SIZES[model]
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"model.preset=bench-{model}", f"data.seq={seq}", f"train.global_batch={batch}",
                    f"train.steps={steps + 2}", "train.eval_every=0", "train.save_every=0", "train.async_save=false",
                    "optim.warmup=0", f"layout.dp={ranks}", f"run.threads={2 // ranks}", "train.save_last=false"]
        command = [program, "train", "--out", f"{folder}/run"]
        for setting in settings:
            command += ["--set", setting]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"lockstep failed: {' '.join(command)}")
        with open(f"{folder}/run/metrics.jsonl") as lines:
            times = [json.loads(line)["step_ms"] for line in lines][2:]
    step = statistics.median(times)
    return {"tokens_per_s": seq * batch / step * 1e3, "step_ms": step, "peak_resident_mib": usage.ru_maxrss / 1024}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--models", default="ab")
    arguments.add_argument("--ranks", type=int, choices=(1, 2), default=1)
    settings = arguments.parse_args()
    blases = [b for b in ("openblas-openmp", "blis-openmp") if os.path.isdir(f"{LIBRARIES}/{b}")]
    if not blases:
        sys.exit("no OpenMP BLAS found; apt-get install libopenblas0-openmp libblis4-openmp")
    print("| model | | tokens/s | step ms | peak MiB |\n|---|---|---|---|---|")
    for model in settings.models:
        steps = 8 if model == "a" else 4
        rows = {}
        for _ in range(settings.rounds):
            rows.setdefault("lockstep", []).append(lockstep(settings.program, model, steps, settings.ranks))
            if settings.ranks > 1:
                rows.setdefault("lockstep, 1 rank", []).append(lockstep(settings.program, model, steps, 1))
            for blas in blases:
                rows.setdefault(f"PyTorch, {blas}", []).append(torch(model, blas, steps, settings.ranks))
        middle = {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in rows.items()}
        for name, m in middle.items():
            print(f"| {model} | {name} | {m['tokens_per_s']:.0f} | {m['step_ms']:.0f} | {m['peak_resident_mib']:.0f} |")
        peers = [m for name, m in middle.items() if name.startswith("PyTorch")]
        best = max(m["tokens_per_s"] for m in peers)
        smallest = min(m["peak_resident_mib"] for m in peers)
        ours = middle["lockstep"]
        print(f"| {model} | **ratio to the best** | **{ours['tokens_per_s'] / best:.2f}** | |"
              f" **{ours['peak_resident_mib'] / smallest:.2f}** |")
        if settings.ranks > 1:
            alone = statistics.median(a["tokens_per_s"] / b["tokens_per_s"]
                                      for a, b in zip(rows["lockstep"], rows["lockstep, 1 rank"]))
            print(f"| {model} | **ratio to one rank of two threads** | **{alone:.2f}** | | |")


if __name__ == "__main__":
    main()
