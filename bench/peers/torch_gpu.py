#!/usr/bin/env python3
"""Training steps of the GPU benchmark's models in PyTorch, set up as its users do for speed on one GPU.

fp32 weights under bf16 autocast, each block compiled, the loss compiled, cuDNN's attention (FlashAttention where that has
none), fused AdamW, clipping. Prints one JSON line: model, ms (median), tok_s, tflops, mfu (of 989.4 TFLOP/s dense bf16),
peak_gib (of the allocator), loss. bench/peers/compare_gpu.py runs it beside lockstep.

    bench/peers/torch_gpu.py MODEL SEQ BATCH [--steps 12] [--eager] [--bf16-weights] [--flash]
"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

PEAK = 989.4e12  # FLOP/s of an H200 (and H100 SXM) by its data sheet, dense bf16
WARM_UP = 4
SIZES = {  # as configs/models/ has them under the same names
    "smol-1.7b": dict(width=2048, layers=24, heads=32, kv_heads=32, ffn=8192, vocabulary=49152),
    "llama-350m": dict(width=1024, layers=24, heads=16, kv_heads=16, ffn=2816, vocabulary=32000),
    "llama-7b-4l": dict(width=4096, layers=4, heads=32, kv_heads=8, ffn=14336, vocabulary=32000),
    "llama-1b": dict(width=2048, layers=16, heads=32, kv_heads=8, ffn=8192, vocabulary=128256),
}


def linear(inner, outer):
    return nn.Linear(inner, outer, bias=False)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        kv_width = kv_heads * self.head_width
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query, self.key, self.value = linear(width, width), linear(width, kv_width), linear(width, kv_width)
        self.out = linear(width, width)
        self.gate, self.up, self.down = linear(width, ffn), linear(width, ffn), linear(ffn, width)

    def forward(self, x, cos, sin):
        batch, seq, width = x.shape
        normed = self.norm1(x)

        def heads_of(projection, count):
            return projection(normed).view(batch, seq, count, self.head_width).transpose(1, 2)

        def turned(t):
            first, second = t.chunk(2, -1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(t.dtype)

        q, k = heads_of(self.query, self.heads), heads_of(self.key, self.kv_heads)
        v = heads_of(self.value, self.kv_heads)
        mixed = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True,
                                               enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    def __init__(self, size, seq):
        super().__init__()
        width, head_width = size["width"], size["width"] // size["heads"]
        self.embedding = nn.Embedding(size["vocabulary"], width)
        self.blocks = nn.ModuleList(
            Block(width, size["heads"], size["kv_heads"], size["ffn"]) for _ in range(size["layers"]))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), linear(width, size["vocabulary"])
        frequencies = 500000.0 ** -(torch.arange(0, head_width, 2).float() / head_width)
        angles = torch.outer(torch.arange(seq).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def model_flops(model, size, seq, batch):
    """Six for each weight of a product and token, and attention with its hidden half left out."""
    in_products = sum(p.numel() for p in model.parameters()) - model.embedding.weight.numel()
    return 6 * in_products * batch * seq + 6 * size["layers"] * size["width"] * seq * seq * batch


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", choices=SIZES)
    arguments.add_argument("seq", type=int)
    arguments.add_argument("batch", type=int)
    arguments.add_argument("--steps", type=int, default=12)
    arguments.add_argument("--eager", action="store_true", help="compile nothing")
    arguments.add_argument("--bf16-weights", action="store_true", help="weights, gradients and moments in bf16")
    arguments.add_argument("--flash", action="store_true", help="FlashAttention in place of cuDNN's attention")
    s = arguments.parse_args()

    torch.manual_seed(0)
    size = SIZES[s.model]
    with torch.device("cuda"):
        model = Model(size, s.seq)
    if s.bf16_weights:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss = loss_of
    if not s.eager:
        for block in model.blocks:
            block.compile()
        loss = torch.compile(loss_of)
    tokens, targets = (torch.randint(0, size["vocabulary"], (s.batch, s.seq), device="cuda") for _ in range(2))
    kernels = [SDPBackend.FLASH_ATTENTION] if s.flash else [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]

    def step():
        with sdpa_kernel(kernels, set_priority=True), torch.autocast("cuda", torch.bfloat16, not s.bf16_weights):
            value = loss(model(tokens), targets)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value

    times = []
    for _ in range(WARM_UP + s.steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        value = step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    ms = statistics.median(times[WARM_UP:])
    rate = model_flops(model, size, s.seq, s.batch) / ms * 1e3
    print(json.dumps({
        "model": s.model,
        "ms": ms,
        "tok_s": s.batch * s.seq / ms * 1e3,
        "tflops": rate / 1e12,
        "mfu": rate / PEAK,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "loss": value.item(),
    }))


if __name__ == "__main__":
    main()
