#!/usr/bin/env python3
"""One training step of the models bench-a and bench-b in plain PyTorch on a CPU, fp32, AdamW.

Prints one JSON line: tokens_per_s (median), step_ms, peak_resident_mib. bench/peers/compare.py runs it beside lockstep with
the settings that make it fastest: an OpenMP BLAS, tcmalloc, two threads. With --ranks 2 it is DistributedDataParallel over gloo,
a process a rank, each on a core of its own, the batch dealt out.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {  # as configs/models/bench-a.toml and bench-b.toml
    "a": dict(width=256, layers=6, heads=8, ffn=768, vocabulary=4096, seq=256, batch=8),
    "b": dict(width=512, layers=12, heads=8, ffn=1408, vocabulary=16384, seq=512, batch=4),
}


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


class Block(nn.Module):
    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def turned(self, x, cos, sin):
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def forward(self, x, cos, sin, hidden):
        batch, seq, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, self.head_width)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = self.turned(q, cos, sin) @ self.turned(k, cos, sin).transpose(-1, -2)
        mixed = F.softmax(scores * self.head_width**-0.5 + hidden, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, width, layers, heads, ffn, vocabulary, seq, batch):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        head_width = width // heads
        frequencies = 10000.0 ** -(torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(seq).float(), frequencies)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("hidden", torch.full((seq, seq), float("-inf")).triu(1))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.hidden)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def train(rank, settings):
    torch.set_num_threads(settings.threads)
    torch.manual_seed(1)
    size = dict(SIZES[settings.model])
    tokens_a_step = size["batch"] * size["seq"]
    model = Model(**size)
    if settings.ranks > 1:
        os.sched_setaffinity(0, {rank % os.cpu_count()})
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(settings.port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=settings.ranks)
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        size["batch"] //= settings.ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=False)
    times = []
    for _ in range(settings.steps + 2):
        tokens = torch.randint(0, size["vocabulary"], (size["batch"], size["seq"] + 1))
        if settings.ranks > 1:
            torch.distributed.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=settings.ranks == 1)
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    step = statistics.median(times[2:])  # the first two warm up
    if rank == 0:
        print(json.dumps({
            "tokens_per_s": tokens_a_step / step,
            "step_ms": step * 1e3,
            "peak_resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", choices=SIZES, default="a")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=8)
    arguments.add_argument("--ranks", type=int, default=1)
    arguments.add_argument("--port", type=int, default=29611)
    settings = arguments.parse_args()
    if settings.ranks > 1:
        torch.multiprocessing.spawn(train, (settings,), settings.ranks)
    else:
        train(0, settings)


if __name__ == "__main__":
    main()
