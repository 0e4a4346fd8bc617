#include "support/cases/attention_cases.h"

#include <limits>

#include "kernels/cuda/attention/cudnn_attention_parts.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/elementwise.h"
#include "support/reference_ops.h"
#include "support/reference_random.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;

// q, k and v, or their gradients: three operands from index `at` on, or three slices of one.
struct Three {
  Tensor q, k, v;
  Three(Tensors t, int at, const AttentionCase& spec) {
    if (spec.layout != Layout::fused) {
      q = t[at], k = t[at + 1], v = t[at + 2];
      return;
    }
    q = t[at].slice(2, 0, spec.heads);
    k = t[at].slice(2, spec.heads, spec.key_heads);
    v = t[at].slice(2, spec.heads + spec.key_heads, spec.key_heads);
  }
};

struct HostThree {
  HostTensor q, k, v;
  HostThree(std::span<HostTensor> t, int at, const AttentionCase& spec) {
    if (spec.layout != Layout::fused) {
      q = t[at], k = t[at + 1], v = t[at + 2];
      return;
    }
    q = t[at].slice(2, 0, spec.heads);
    k = t[at].slice(2, spec.heads, spec.key_heads);
    v = t[at].slice(2, spec.heads + spec.key_heads, spec.key_heads);
  }
  void put_back(std::span<HostTensor> t, int at, const AttentionCase& spec) const {
    if (spec.layout != Layout::fused) {
      t[at] = q, t[at + 1] = k, t[at + 2] = v;
      return;
    }
    t[at].paste(2, 0, q);
    t[at].paste(2, spec.heads, k);
    t[at].paste(2, spec.heads + spec.key_heads, v);
  }
};

std::array<std::int64_t, Shape::kMaxDims> gaps_of(const AttentionCase& spec) {
  if (spec.layout != Layout::strided) return {};
  return {0, 1, 1, 5};
}

void add_three(std::vector<Operand>& operands, DType dtype, const AttentionCase& spec, Role role,
               const std::string& prefix) {
  const auto gaps = gaps_of(spec);
  if (spec.layout == Layout::fused) {
    const Shape shape{spec.batch, spec.queries, spec.heads + 2 * spec.key_heads, spec.width};
    operands.push_back({prefix + "qkv", shape, dtype, role, normal(spec.spread)});
    return;
  }
  const Shape keys{spec.batch, spec.keys, spec.key_heads, spec.width};
  operands.push_back(
      {prefix + "q", {spec.batch, spec.queries, spec.heads, spec.width}, dtype, role, normal(spec.spread), gaps});
  operands.push_back({prefix + "k", keys, dtype, role, normal(), gaps});
  operands.push_back({prefix + "v", keys, dtype, role, normal(), gaps});
}

AttentionSizes sizes_of(DType dtype, const AttentionCase& spec) {
  return {.B = spec.batch,
          .T = spec.queries,
          .S = spec.keys,
          .H = spec.heads,
          .K = spec.key_heads,
          .D = spec.width,
          .dtype = dtype,
          .causal = spec.causal,
          .dropout = spec.dropout.probability > 0,
          .documents = spec.documents > 0};
}

// Behind the case's other operands.
void add_starts(std::vector<Operand>& operands, const AttentionCase& spec) {
  if (spec.documents == 0) return;
  std::vector<double> starts;
  for (std::int64_t b = 0; b < spec.batch; ++b)
    for (std::int64_t t = 0; t < spec.queries; ++t) starts.push_back(static_cast<double>(spec.start(b, t)));
  operands.push_back({"starts", {spec.batch, spec.queries}, DType::i32, Role::in, listed(std::move(starts))});
}

DocumentMask documents_of(Tensors t, const AttentionCase& spec) {
  if (spec.documents == 0) return {};
  return {.starts = t.back(), .first_key = spec.first_key};
}

// Only the cases that fused kernels take on a GPU may round terms to 16 bits, and only there.
bool fused_on_gpus(DType dtype, const AttentionCase& spec) {
  const AttentionSizes sizes = sizes_of(dtype, spec);
  return spec.layout != Layout::strided && (!cuda::why_not_cudnn(sizes) || !cuda::why_not_hopper(sizes));
}

reference::AttentionOptions options_of(DType dtype, const AttentionCase& spec, const std::vector<double>& mask,
                                       std::span<const HostTensor> t) {
  return {.scale = spec.score_scale(),
          .causal = spec.causal,
          .mask = mask.empty() ? nullptr : &mask,
          .starts = spec.documents > 0 ? &t.back() : nullptr,
          .first_key = spec.first_key,
          .narrow_terms = fused_on_gpus(dtype, spec)};
}

// 0 or 1 / (1 - p) of every probability (B, H, T, S); empty without dropout.
std::vector<double> mask_of(const AttentionCase& spec) {
  const AttentionDropout& d = spec.dropout;
  std::vector<double> mask;
  if (d.probability == 0) return mask;
  for (std::int64_t b = 0; b < spec.batch; ++b)
    for (std::int64_t h = 0; h < spec.heads; ++h)
      for (std::int64_t t = 0; t < spec.queries; ++t)
        for (std::int64_t s = 0; s < spec.keys; ++s)
          mask.push_back(reference::keeps_probability(d.key, d.probability, d.first_sample + b, d.first_head + h,
                                                      d.first_query + t, d.first_key + s)
                             ? 1 / (1 - d.probability)
                             : 0);
  return mask;
}

// The kernel's workspace, for the length of a call; like what it writes, poisoned.
struct Workspace {
  Workspace(const AttentionSizes& sizes, Stream& stream) {
    const std::int64_t bytes = attention_workspace(stream.device(), sizes);
    if (bytes == 0) return;
    memory = make_memory(stream.device(), ledger);
    buffer = memory->allocate(bytes, Tag::workspace);
    tensor = view(buffer, DType::f32, {bytes / 4});
    fill({.y = tensor, .value = std::numeric_limits<double>::quiet_NaN()}, stream);
  }
  Ledger ledger;
  std::unique_ptr<Memory> memory;
  Buffer buffer;
  Tensor tensor;
};
}  // namespace

double AttentionCase::score_scale() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(width)); }

std::string AttentionCase::label() const {
  static constexpr const char* kLayouts[] = {"", "_strided", "_fused"};
  return fmt::format("b{}_t{}_s{}_h{}_k{}_d{}_{}{}{}{}", batch, queries, keys, heads, key_heads, width,
                     causal ? "causal" : "full", kLayouts[static_cast<int>(layout)],
                     dropout.probability > 0 ? "_dropout" : "", spread != 1 ? "_wide" : "") +
         (documents > 0 ? fmt::format("_documents{}_from{}_apart{}", documents, first_key, apart) : "");
}

std::int64_t AttentionCase::start(std::int64_t b, std::int64_t t) const {
  std::int64_t at = first_key + t + (causal ? keys - queries : keys + apart);
  while (at > 0 && uniform_number(static_cast<std::uint64_t>(b), at) * static_cast<double>(documents) > 1) --at;
  return at;
}

KernelCase make_attention_forward(DType dtype, const AttentionCase& spec) {
  KernelCase made{.op = "attention_forward", .shape = spec.label(), .dtype = dtype};
  const Shape out{spec.batch, spec.queries, spec.heads, spec.width};
  made.operands = {{"o", out, dtype, Role::out, normal(), gaps_of(spec)},
                   {"lse", {spec.batch, spec.heads, spec.queries}, accumulator_of(dtype), Role::out}};
  add_three(made.operands, dtype, spec, Role::in, "");
  add_starts(made.operands, spec);
  made.plain = spec.layout != Layout::fused;
  made.run = [spec](Tensors t, Stream& stream) {
    const Three in(t, 2, spec);
    attention_forward({.o = t[0],
                       .lse = t[1],
                       .q = in.q,
                       .k = in.k,
                       .v = in.v,
                       .scale = spec.score_scale(),
                       .causal = spec.causal,
                       .dropout = spec.dropout,
                       .documents = documents_of(t, spec)},
                      stream);
  };
  made.reference = [dtype, spec](std::span<HostTensor> t) {
    const HostThree in(t, 2, spec);
    const std::vector<double> mask = mask_of(spec);
    reference::attention_forward(t[0], t[1], in.q, in.k, in.v, options_of(dtype, spec, mask, t));
  };
  return made;
}

// Operands: d_o, o, lse, then q, k, v, then dq, dk, dv.
KernelCase make_attention_backward(DType dtype, const AttentionCase& spec) {
  KernelCase made{.op = "attention_backward", .shape = spec.label(), .dtype = dtype};
  const Shape out{spec.batch, spec.queries, spec.heads, spec.width};
  made.operands = {{"d_o", out, dtype, Role::in, normal(), gaps_of(spec)},
                   {"o", out, dtype, Role::in, normal(), gaps_of(spec)},
                   {"lse", {spec.batch, spec.heads, spec.queries}, accumulator_of(dtype), Role::in}};
  add_three(made.operands, dtype, spec, Role::in, "");
  const int gradients = static_cast<int>(made.operands.size());
  add_three(made.operands, dtype, spec, Role::out, "d");
  add_starts(made.operands, spec);
  made.plain = spec.layout != Layout::fused;
  made.run = [dtype, spec, gradients](Tensors t, Stream& stream) {
    const Three in(t, 3, spec), d(t, gradients, spec);
    const Workspace workspace(sizes_of(dtype, spec), stream);
    attention_backward({.dq = d.q,
                        .dk = d.k,
                        .dv = d.v,
                        .d_o = t[0],
                        .q = in.q,
                        .k = in.k,
                        .v = in.v,
                        .o = t[1],
                        .lse = t[2],
                        .scale = spec.score_scale(),
                        .causal = spec.causal,
                        .dropout = spec.dropout,
                        .documents = documents_of(t, spec),
                        .workspace = workspace.tensor},
                       stream);
  };
  made.prepare = [dtype, spec](std::span<HostTensor> t) {
    const HostThree in(t, 3, spec);
    const std::vector<double> mask = mask_of(spec);
    reference::attention_forward(t[1], t[2], in.q, in.k, in.v, options_of(dtype, spec, mask, t));
  };
  made.reference = [dtype, spec, gradients](std::span<HostTensor> t) {
    const HostThree in(t, 3, spec);
    HostThree d(t, gradients, spec);
    const std::vector<double> mask = mask_of(spec);
    reference::attention_backward({d.q, d.k, d.v}, t[0], {in.q, in.k, in.v, t[1], t[2]},
                                  options_of(dtype, spec, mask, t));
    d.put_back(t, gradients, spec);
  };
  return made;
}

Cases attention_cases(DType dtype) {
  const AttentionDropout dropout{.probability = 0.3, .key = 77, .first_sample = 2, .first_head = 1};
  std::vector<AttentionCase> specs = {
      {1, 1, 1, 1, 1, 4},
      {2, 7, 7, 1, 1, 8},
      {2, 5, 9, 2, 1, 1},
      {1, 17, 17, 3, 3, 31, true, Layout::strided},
      {1, 63, 63, 6, 3, 16, true, Layout::fused},
      {2, 64, 64, 2, 2, 64},
      {1, 65, 65, 8, 1, 16, true, Layout::strided},
      {1, 200, 200, 2, 1, 80},
      {1, 33, 33, 2, 2, 128, true, Layout::fused},
      {1, 65, 65, 2, 2, 256, false},
      {2, 13, 31, 4, 2, 16, true, Layout::strided},  // S > T: the queries are the last ones
      {1, 1, 200, 4, 4, 64},                         // one new token before a long past
      {1, 130, 257, 2, 1, 16},
      {2, 31, 70, 3, 1, 8, false},
      {1, 70, 31, 2, 2, 16, false, Layout::strided},  // fewer keys than queries: only without the mask
      {1, 40, 40, 2, 2, 32, true, Layout::fused, 0.07},
      {1, 67, 67, 2, 1, 16, true, Layout::dense, 0, 1, dropout},
      {1, 20, 45, 2, 2, 24, false, Layout::dense, 0, 1, dropout},
      // Documents: shorter than a tile, longer, one; of which some keys are elsewhere, or all.
      {2, 67, 67, 2, 1, 16, true, Layout::dense, 0, 1, {}, 5},
      {2, 200, 200, 4, 2, 24, true, Layout::fused, 0, 1, {}, 30},
      {2, 130, 130, 2, 2, 64, true, Layout::strided, 0, 1, dropout, 100},
      {1, 70, 150, 2, 1, 8, true, Layout::dense, 0, 1, {}, 40, 9},
      {3, 65, 65, 2, 2, 16, true, Layout::dense, 0, 1, {}, 1000000, 100},
      {3, 65, 65, 2, 1, 16, false, Layout::strided, 0, 1, {}, 50, 65},
      {2, 33, 130, 3, 3, 8, false, Layout::dense, 0, 1, {}, 60, 11, 20},
      {2, 40, 40, 2, 2, 16, false, Layout::dense, 0, 1, dropout, 20, 0, 100},
  };
  if (accumulator_of(dtype) != dtype)  // as models in 16 bits have it: what a GPU's fused kernels take
    for (const AttentionCase& spec :
         {AttentionCase{2, 128, 128, 4, 2, 64, true, Layout::fused},
          AttentionCase{1, 200, 200, 2, 2, 128, true, Layout::fused},
          AttentionCase{1, 201, 201, 3, 1, 64, true, Layout::fused},
          AttentionCase{2, 96, 96, 3, 3, 24, true, Layout::fused, 0.07},
          // A ring's pairs, and documents: within samples and between segments.
          AttentionCase{2, 128, 192, 4, 2, 64, false}, AttentionCase{1, 200, 131, 2, 2, 128, false},
          AttentionCase{1, 100, 100, 2, 1, 80, false},
          AttentionCase{2, 300, 300, 3, 1, 64, true, Layout::fused, 0, 1, {}, 60},
          AttentionCase{1, 257, 257, 2, 2, 128, true, Layout::fused, 0, 1, {}, 90},
          AttentionCase{2, 70, 150, 4, 2, 64, false, Layout::dense, 0, 1, {}, 60, 11, 20},
          AttentionCase{1, 140, 70, 2, 1, 128, false, Layout::dense, 0, 1, {}, 200, 100}})
      specs.push_back(spec);
  Cases cases;
  for (const AttentionCase& spec : specs) {
    cases.push_back(make_attention_forward(dtype, spec));
    cases.push_back(make_attention_backward(dtype, spec));
  }
  return cases;
}

}  // namespace lockstep::tests
