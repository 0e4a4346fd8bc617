#include "bench/kernel_benches.h"

#include <cmath>

#include "base/integers.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm_sum.h"
#include "kernels/optimizers.h"
#include "kernels/quantize.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/step_control.h"
#include "kernels/swiglu.h"
#include "parallel/zero_shards.h"
#include "spec/model/fp8_fit.h"

namespace lockstep {

namespace {

struct Sizes {
  std::int64_t B, T, N, C, F, V, H, K, D;
  bool trains_the_same_bits;
  StorageTypes types;
};

void add_attention(std::vector<KernelBench>& all, const Sizes& s, bool both) {
  const double scale = 1 / std::sqrt(static_cast<double>(s.D));
  const auto forward = [=](TimedTensors& d) {
    return AttentionForwardArgs{.o = d.tensor({s.B, s.T, s.H, s.D}),
                                .lse = d.sums({s.B, s.H, s.T}),
                                .q = d.tensor({s.B, s.T, s.H, s.D}),
                                .k = d.tensor({s.B, s.T, s.K, s.D}),
                                .v = d.tensor({s.B, s.T, s.K, s.D}),
                                .scale = scale};
  };
  all.push_back({kAttentionForward,
                 [=](TimedTensors& d) { return [args = forward(d), &d] { attention_forward(args, d.stream()); }; }});
  for (const bool deterministic : {true, false}) {
    if (!both && deterministic != s.trains_the_same_bits) continue;
    all.push_back({deterministic ? kAttentionBackward : kAttentionBackwardFree, [=](TimedTensors& d) {
                     const AttentionForwardArgs f = forward(d);
                     attention_forward(f, d.stream());
                     const std::int64_t bytes = attention_workspace(d.runs_on(), {.B = s.B,
                                                                                  .T = s.T,
                                                                                  .S = s.T,
                                                                                  .H = s.H,
                                                                                  .K = s.K,
                                                                                  .D = s.D,
                                                                                  .dtype = d.dtype(),
                                                                                  .deterministic = deterministic});
                     AttentionBackwardArgs args{.dq = d.tensor({s.B, s.T, s.H, s.D}),
                                                .dk = d.tensor({s.B, s.T, s.K, s.D}),
                                                .dv = d.tensor({s.B, s.T, s.K, s.D}),
                                                .d_o = d.tensor({s.B, s.T, s.H, s.D}),
                                                .q = f.q,
                                                .k = f.k,
                                                .v = f.v,
                                                .o = f.o,
                                                .lse = f.lse,
                                                .scale = scale,
                                                .deterministic = deterministic};
                     if (bytes > 0) args.workspace = d.tensor({ceil_div(bytes, 4)}, DType::f32);
                     return [args, &d] { attention_backward(args, d.stream()); };
                   }});
  }
}

void add_rows(std::vector<KernelBench>& all, const Sizes& s) {
  all.push_back({"rmsnorm_forward", [=](TimedTensors& d) {
                   RmsNormForwardArgs args{.y = d.tensor({s.N, s.C}),
                                           .rstd = d.sums({s.N}),
                                           .x = d.tensor({s.N, s.C}),
                                           .weight = d.tensor({s.C}),
                                           .eps = 1e-5};
                   return [args, &d] { rmsnorm_forward(args, d.stream()); };
                 }});
  all.push_back({"rmsnorm_backward_input", [=](TimedTensors& d) {
                   RmsNormBackwardInputArgs args{.dx = d.tensor({s.N, s.C}),
                                                 .dy = d.tensor({s.N, s.C}),
                                                 .x = d.tensor({s.N, s.C}),
                                                 .weight = d.tensor({s.C}),
                                                 .rstd = d.sums({s.N}),
                                                 .dresidual = d.tensor({s.N, s.C})};
                   return [args, &d] { rmsnorm_backward_input(args, d.stream()); };
                 }});
  all.push_back({"rmsnorm_backward_weight", [=](TimedTensors& d) {
                   RmsNormBackwardWeightArgs args{.dweight = d.tensor({s.C}, s.types.gradient),
                                                  .dy = d.tensor({s.N, s.C}),
                                                  .x = d.tensor({s.N, s.C}),
                                                  .rstd = d.sums({s.N})};
                   return [args, &d] { rmsnorm_backward_weight(args, d.stream()); };
                 }});
  all.push_back({"rope", [=](TimedTensors& d) {
                   RopeArgs args{.x = d.tensor({s.B, s.T, s.H, s.D}),
                                 .cos = d.sums({s.T, s.D / 2}),
                                 .sin = d.sums({s.T, s.D / 2})};
                   return [args, &d] { rope(args, d.stream()); };
                 }});
  all.push_back({"swiglu_forward", [=](TimedTensors& d) {
                   SwigluForwardArgs args{.y = d.tensor({s.N, s.F}), .gate_up = d.tensor({s.N, 2 * s.F})};
                   return [args, &d] { swiglu_forward(args, d.stream()); };
                 }});
  all.push_back({"swiglu_backward", [=](TimedTensors& d) {
                   SwigluBackwardArgs args{.d_gate_up = d.tensor({s.N, 2 * s.F}),
                                           .dy = d.tensor({s.N, s.F}),
                                           .gate_up = d.tensor({s.N, 2 * s.F})};
                   return [args, &d] { swiglu_backward(args, d.stream()); };
                 }});
  all.push_back({"add", [=](TimedTensors& d) {
                   AddArgs args{.y = d.tensor({s.N, s.C}), .a = d.tensor({s.N, s.C}), .b = d.tensor({s.N, s.C})};
                   return [args, &d] { add(args, d.stream()); };
                 }});
}

// The two passes of SwiGLU's backward that give its gradient in FP8, with the output turned once more.
void add_fp8_swiglu(std::vector<KernelBench>& all, const Sizes& s) {
  all.push_back({"swiglu_backward_amax", [=](TimedTensors& d) {
                   SwigluBackwardArgs args{.d_gate_up = {},
                                           .dy = d.tensor({s.N, s.F}),
                                           .gate_up = d.tensor({s.N, 2 * s.F}),
                                           .amax = d.room({1}, DType::f32)};
                   return [args, &d] { swiglu_backward(args, d.stream()); };
                 }});
  for (const bool again : {false, true})
    all.push_back({again ? "swiglu_backward_fp8_again" : "swiglu_backward_fp8", [=](TimedTensors& d) {
                     SwigluBackwardFp8Args args{.d8 = d.room({s.N, 2 * s.F}, DType::f8e5m2),
                                                .d8_turned = d.room({2 * s.F, s.N}, DType::f8e5m2),
                                                .scale = d.room({1}, DType::f32),
                                                .dy = d.tensor({s.N, s.F}),
                                                .gate_up = d.tensor({s.N, 2 * s.F}),
                                                .amax = d.tensor({1}, DType::f32)};
                     if (again) {
                       args.y8_turned = d.room({s.F, s.N}, DType::f8e4m3);
                       args.y_amax = d.tensor({1}, DType::f32);
                     }
                     return [args, &d] { swiglu_backward_fp8(args, d.stream()); };
                   }});
}

// Of the widest projection, the feed-forward part's inputs (model/fp8_products.h).
void add_fp8(std::vector<KernelBench>& all, const Sizes& s, std::int64_t out) {
  if (!fits_fp8(s.N, s.C, out)) return;
  all.push_back({"amax", [=](TimedTensors& d) {
                   AmaxArgs args{.amax = d.room({1}, DType::f32), .x = d.tensor({s.N, out})};
                   return [args, &d] { amax(args, d.stream()); };
                 }});
  const auto quantizes = [=](const char* name, std::int64_t columns, DType type, bool straight) {
    return KernelBench{name, [=](TimedTensors& d) {
                         QuantizeArgs args{.turned = d.room({columns, s.N}, type),
                                           .scale = d.room({1}, DType::f32),
                                           .x = d.tensor({s.N, columns}),
                                           .amax = d.tensor({1}, DType::f32)};
                         if (straight) args.q = d.room({s.N, columns}, type);
                         return [args, &d] { quantize(args, d.stream()); };
                       }};
  };
  all.push_back(quantizes("quantize_gradient", out, DType::f8e5m2, true));
  all.push_back(quantizes("quantize_turned", s.C, DType::f8e4m3, false));
  all.push_back({"quantize_normed", [=](TimedTensors& d) {
                   QuantizeArgs args{.q = d.room({s.N, s.C}, DType::f8e4m3),
                                     .turned = d.room({s.C, s.N}, DType::f8e4m3),
                                     .scale = d.room({1}, DType::f32),
                                     .x = d.tensor({s.N, s.C}),
                                     .amax = d.tensor({1}, DType::f32),
                                     .norm = {.weight = d.tensor({s.C}), .rstd = d.tensor({s.N}, DType::f32)}};
                   return [args, &d] { quantize(args, d.stream()); };
                 }});
  if (out == 2 * s.F && s.F % 16 == 0) add_fp8_swiglu(all, s);
  struct Product {
    const char* name;
    std::int64_t m, n, k;
    DType a;
    bool to_gradient, fast_sums;
  };
  for (const Product& p : {Product{"fp8_product_forward", s.N, out, s.C, DType::f8e4m3, false, true},
                           Product{"fp8_product_full_sums", s.N, out, s.C, DType::f8e4m3, false, false},
                           Product{"fp8_product_input", s.N, s.C, out, DType::f8e5m2, false, false},
                           Product{"fp8_product_weight", out, s.C, s.N, DType::f8e5m2, true, false}})
    all.push_back({p.name, [=](TimedTensors& d) {
                     const TimedTensors::Quantized a = d.fp8({p.m, p.k}, p.a), b = d.fp8({p.n, p.k}, DType::f8e4m3);
                     MatmulArgs args{.c = p.to_gradient ? d.tensor({p.m, p.n}, s.types.gradient) : d.tensor({p.m, p.n}),
                                     .a = a.q,
                                     .b = b.q,
                                     .transpose_b = true,
                                     .accumulate = p.to_gradient,
                                     .scale_a = a.scale,
                                     .scale_b = b.scale,
                                     .fast_sums = p.fast_sums};
                     return [args, &d] { matmul(args, d.stream()); };
                   }});
}

void add_ends(std::vector<KernelBench>& all, const Sizes& s, std::int64_t tile, std::int64_t flat) {
  all.push_back({"cross_entropy", [=](TimedTensors& d) {
                   CrossEntropyArgs args{.losses = d.sums({tile}),
                                         .dlogits = d.tensor({tile, s.V}),
                                         .logits = d.sums({tile, s.V}),
                                         .targets = d.indices({tile}, s.V),
                                         .scale = d.sums({1})};
                   return [args, &d] { cross_entropy(args, d.stream()); };
                 }});
  all.push_back({"embedding_backward", [=](TimedTensors& d) {
                   EmbeddingBackwardArgs args{.dtable = d.tensor({s.V, s.C}, s.types.gradient),
                                              .dy = d.tensor({s.B, s.T, s.C}),
                                              .indices = d.indices({s.B, s.T}, s.V)};
                   return [args, &d] { embedding_backward(args, d.stream()); };
                 }});
  all.push_back({"norm_sum", [=](TimedTensors& d) {
                   NormSumArgs args{.bins = d.zeros({kNormBins}, DType::i64), .x = d.tensor({flat}, s.types.gradient)};
                   return [args, &d] { norm_sum(args, d.stream()); };
                 }});
  all.push_back({"adamw", [=](TimedTensors& d) {
                   std::vector<double> control(kStepControls);
                   control[kLearningRate] = 1e-6;
                   control[kStep] = control[kGradientScale] = control[kFinite] = 1;
                   control[kFirstCorrection] = control[kSecondCorrection] = 1;
                   const auto rounding = std::make_shared<RoundingRun>(RoundingRun::flat(0, flat, 1));
                   AdamWArgs args{.master = d.tensor({flat}, s.types.master),
                                  .weight = d.dtype() == s.types.master ? Tensor{} : d.tensor({flat}),
                                  .m = d.tensor({flat}, s.types.moments),
                                  .v = d.tensor({flat}, s.types.moments),
                                  .gradient = d.tensor({flat}, s.types.gradient),
                                  .control = d.doubles(control),
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .decay = 0.1,
                                  .decayed = flat,
                                  .rounding = {&*rounding, 1}};
                   fill({.y = args.v, .value = 1}, d.stream());
                   return [args, rounding, &d] { adamw(args, d.stream()); };
                 }});
}

}  // namespace

std::int64_t head_tile(const Model& model) {
  for (const SlotSpec& slot : model.slots().all())
    if (slot.name == "logits") return slot.shape[0];
  LOCKSTEP_CHECK(false, "the model has no logits");
}

std::vector<KernelBench> kernel_benches(const RunSpec& run, const Model& model) {
  const ModelSpec& m = run.model;
  const Sizes s{.B = model.B(),
                .T = model.T(),
                .N = model.B() * model.T(),
                .C = m.width,
                .F = m.ffn_width,
                .V = m.vocabulary,
                .H = m.heads,
                .K = m.kv_heads,
                .D = m.head_width,
                .trains_the_same_bits = run.train.deterministic,
                .types = storage_types(run.precision)};
  std::vector<KernelBench> all;
  add_attention(all, s, run.run.device == RunDevice::cuda);
  add_rows(all, s);
  if (run.precision.compute == Precision::fp8) add_fp8(all, s, m.mlp == MlpKind::swiglu ? 2 * s.F : s.F);
  add_ends(all, s, head_tile(model), model.unit(1).layout().owned());
  return all;
}

}  // namespace lockstep
