#!/usr/bin/env python3
"""How far bf16 gradients are from exact ones: Lockstep's beside PyTorch's, on a golden folder of the Llama family.

    bench/peers/bf16_error.py build/release/lockstep [tests/golden/llama-tiny]

Both start from the folder's weights and first batch. PyTorch computes as mixed-precision training usually does (autocast to
bfloat16 over fp32 weights); the exact gradients are the folder's, computed in fp64. An error is the angle between a gradient
and the exact one, sqrt(2 (1 - cosine)), which for small angles is the relative distance. Needs PyTorch with a GPU.
"""
import json
import math
import os
import struct
import subprocess
import sys

import torch
import torch.nn.functional as F


def read_safetensors(path):
    kinds = {"F32": torch.float32, "I32": torch.int32, "F64": torch.float64}
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    return {
        name: torch.frombuffer(data, dtype=kinds[t["dtype"]], offset=t["data_offsets"][0],
                               count=max(1, math.prod(t["shape"]))).reshape(t["shape"])
        for name, t in header.items() if name != "__metadata__"
    }


def loss_of(weights, config, tokens):
    heads, kv, width = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    head_width, eps = config.get("head_dim") or width // heads, config["rms_norm_eps"]
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    inputs, targets = tokens[:, :-1].long(), tokens[:, 1:].long()
    batch, length = inputs.shape
    angles = torch.outer(torch.arange(length, device=tokens.device).float(),
                         theta ** -(torch.arange(0, head_width, 2, device=tokens.device).float() / head_width))
    cos, sin = angles.cos(), angles.sin()

    def turn(x):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def norm(x, name):
        return F.rms_norm(x, (width,), weights[name], eps)

    x = F.embedding(inputs, weights["model.embed_tokens.weight"])
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = norm(x, at + "input_layernorm.weight")
        q, k, v = (F.linear(y, weights[at + f"self_attn.{which}_proj.weight"]).view(batch, length, count, head_width).transpose(1, 2)
                   for which, count in (("q", heads), ("k", kv), ("v", kv)))
        o = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=kv != heads)
        x = x + F.linear(o.transpose(1, 2).reshape(batch, length, -1), weights[at + "self_attn.o_proj.weight"])
        y = norm(x, at + "post_attention_layernorm.weight")
        gate, up = (F.linear(y, weights[at + f"mlp.{which}_proj.weight"]) for which in ("gate", "up"))
        x = x + F.linear(F.silu(gate) * up, weights[at + "mlp.down_proj.weight"])
    logits = F.linear(norm(x, "model.norm.weight"), weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def angle(cosine_distance):
    return math.sqrt(max(0.0, 2 * cosine_distance))


def main():
    program, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tests/golden/llama-tiny"
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    expected = read_safetensors(os.path.join(folder, "expected.safetensors"))
    weights = {name: t.float().cuda().requires_grad_() for name, t in
               read_safetensors(os.path.join(folder, "model.safetensors")).items()}
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(weights, config, expected["tokens"][0].cuda())
    loss.backward()
    theirs = {}
    for name, weight in weights.items():
        exact, got = expected["grad." + name].double().flatten(), weight.grad.double().cpu().flatten()
        theirs[name] = angle(1 - float(exact @ got / (exact.norm() * got.norm())))
    out = subprocess.run([program, "verify", "--reference", folder, "--precision", "bf16", "--device", "cuda", "--json"],
                         capture_output=True, text=True)
    ours = {item["name"].removeprefix("grad."): angle(item["error"]) for item in json.loads(out.stdout)["items"]
            if item["name"].startswith("grad.")}
    ratios = sorted(ours[name] / theirs[name] for name in theirs if theirs[name] > 0)
    total = [math.sqrt(sum(value * value for value in errors.values()) / len(errors)) for errors in (ours, theirs)]
    print(f"{folder}: {len(ratios)} gradients; root mean square error {total[0]:.2e} here, {total[1]:.2e} in PyTorch: "
          f"{total[0] / total[1]:.2f}x; single tensors {ratios[0]:.2f}x to {ratios[-1]:.2f}x, median {ratios[len(ratios) // 2]:.2f}x")
    sys.exit(0 if total[0] <= 1.5 * total[1] else 1)


if __name__ == "__main__":
    main()
