#include "support/gradient_cases.h"

#include "kernels/attention.h"
#include "kernels/bias.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/random.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/split_cross_entropy.h"
#include "kernels/swiglu.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Pairs = std::vector<GradientCase::Pair>;
constexpr double kLargeEps = 1e-3;  // large enough that its place matters

Operand in(const char* name, const Shape& shape, Recipe fill = normal()) {
  return {name, shape, DType::f64, Role::in, fill};
}
Operand out(const char* name, const Shape& shape) { return {name, shape, DType::f64, Role::out}; }
Operand integers(const char* name, const Shape& shape, Recipe fill) {
  return {name, shape, DType::i32, Role::in, fill};
}

GradientCase make(const std::string& op, const std::string& shape, std::vector<Operand> operands,
                  std::function<void(Tensors, Stream&)> run, Pairs outputs, Pairs inputs) {
  return {{.op = op, .shape = shape, .dtype = DType::f64, .operands = std::move(operands), .run = std::move(run)},
          std::move(outputs),
          std::move(inputs)};
}

GradientCase rmsnorm(const Shape& x, bool residual) {
  const Shape rows = x.dims() == 2 ? Shape{x[0]} : Shape{x[0], x[1]}, weight{x[-1]};
  std::vector<Operand> operands = {in("x", x),        in("weight", weight), in("dy", x),           out("y", x),
                                   out("rstd", rows), out("dx", x),         out("dweight", weight)};
  Pairs outputs = {{3, 2}}, inputs = {{0, 5}, {1, 6}};
  if (residual) {
    operands.insert(operands.end(), {in("residual", x), out("sum", x), in("dsum", x)});
    outputs.push_back({8, 9});
    inputs.push_back({7, 5});
  }
  const auto run = [residual](Tensors t, Stream& stream) {
    const Tensor none, normalised = residual ? t[8] : t[0];
    rmsnorm_forward({.y = t[3],
                     .rstd = t[4],
                     .x = t[0],
                     .weight = t[1],
                     .eps = kLargeEps,
                     .residual = residual ? t[7] : none,
                     .sum = residual ? t[8] : none},
                    stream);
    rmsnorm_backward_input(
        {.dx = t[5], .dy = t[2], .x = normalised, .weight = t[1], .rstd = t[4], .dresidual = residual ? t[9] : none},
        stream);
    rmsnorm_backward_weight({.dweight = t[6], .dy = t[2], .x = normalised, .rstd = t[4]}, stream);
  };
  const std::string shape = (x.dims() == 3 ? "heads" : "rows") + std::string(residual ? "_residual" : "");
  return make("rmsnorm", shape, operands, run, outputs, inputs);
}

GradientCase layernorm(const Shape& x, bool residual) {
  const Shape rows{x[0]}, weight{x[1]};
  std::vector<Operand> operands = {in("x", x),          in("weight", weight), in("bias", weight),
                                   in("dy", x),         out("y", x),          out("mean", rows),
                                   out("rstd", rows),   out("dx", x),         out("dweight", weight),
                                   out("dbias", weight)};
  Pairs outputs = {{4, 3}}, inputs = {{0, 7}, {1, 8}, {2, 9}};
  if (residual) {
    operands.insert(operands.end(), {in("residual", x), out("sum", x), in("dsum", x)});
    outputs.push_back({11, 12});
    inputs.push_back({10, 7});
  }
  const auto run = [residual](Tensors t, Stream& stream) {
    const Tensor none, normalised = residual ? t[11] : t[0];
    layernorm_forward({.y = t[4],
                       .mean = t[5],
                       .rstd = t[6],
                       .x = t[0],
                       .weight = t[1],
                       .bias = t[2],
                       .eps = kLargeEps,
                       .residual = residual ? t[10] : none,
                       .sum = residual ? t[11] : none},
                      stream);
    layernorm_backward_input({.dx = t[7],
                              .dy = t[3],
                              .x = normalised,
                              .weight = t[1],
                              .mean = t[5],
                              .rstd = t[6],
                              .dresidual = residual ? t[12] : none},
                             stream);
    layernorm_backward_weight({.dweight = t[8], .dbias = t[9], .dy = t[3], .x = normalised, .mean = t[5], .rstd = t[6]},
                              stream);
  };
  return make("layernorm", residual ? "residual" : "rows", operands, run, outputs, inputs);
}

GradientCase swiglu() {
  const Shape y{5, 13}, wide{5, 26};
  const auto run = [](Tensors t, Stream& stream) {
    swiglu_forward({.y = t[2], .gate_up = t[0]}, stream);
    swiglu_backward({.d_gate_up = t[3], .dy = t[1], .gate_up = t[0]}, stream);
  };
  return make("swiglu", "5x13", {in("gate_up", wide, normal(2)), in("dy", y), out("y", y), out("d_gate_up", wide)}, run,
              {{2, 1}}, {{0, 3}});
}

GradientCase gelu() {
  const Shape x{5, 31};
  const auto run = [](Tensors t, Stream& stream) {
    gelu_forward({.y = t[2], .x = t[0]}, stream);
    gelu_backward({.dx = t[3], .dy = t[1], .x = t[0]}, stream);
  };
  return make("gelu", "5x31", {in("x", x, normal(2)), in("dy", x), out("y", x), out("dx", x)}, run, {{2, 1}}, {{0, 3}});
}

// A linear layer as the model has it: y = x wᵀ + bias, dx = dy w, dw = dyᵀ x, dbias the sum of dy's rows.
GradientCase linear() {
  const Shape x{7, 13}, w{11, 13}, y{7, 11};
  const auto run = [](Tensors t, Stream& stream) {
    matmul({.c = t[4], .a = t[0], .b = t[1], .transpose_b = true, .bias = t[2]}, stream);
    matmul({.c = t[5], .a = t[3], .b = t[1]}, stream);
    matmul({.c = t[6], .a = t[3], .b = t[0], .transpose_a = true}, stream);
    bias_backward({.dbias = t[7], .dy = t[3]}, stream);
  };
  return make("matmul", "linear",
              {in("x", x), in("w", w), in("bias", {11}), in("dy", y), out("y", y), out("dx", x), out("dw", w),
               out("dbias", {11})},
              run, {{4, 3}}, {{0, 5}, {1, 6}, {2, 7}});
}

GradientCase embedding() {
  const Shape y{2, 7, 5};
  const auto run = [](Tensors t, Stream& stream) {
    embedding_forward({.y = t[5], .table = t[0], .tokens = t[2], .position_table = t[1], .positions = t[3]}, stream);
    embedding_backward({.dtable = t[6], .dy = t[4], .indices = t[2]}, stream);
    embedding_backward({.dtable = t[7], .dy = t[4], .indices = t[3]}, stream);
  };
  return make("embedding", "2x7x5",
              {in("table", {9, 5}), in("position_table", {15, 5}), integers("tokens", {2, 7}, indices(9)),
               integers("positions", {7}, positions(1, 2)), in("dy", y), out("y", y), out("dtable", {9, 5}),
               out("dposition_table", {15, 5})},
              run, {{5, 4}}, {{0, 6}, {1, 7}});
}

GradientCase loss() {
  const Shape logits{7, 13};
  const auto run = [](Tensors t, Stream& stream) {
    cross_entropy({.losses = t[3], .dlogits = t[4], .logits = t[0], .targets = t[1], .scale = t[2]}, stream);
  };
  return make("cross_entropy", "some_ignored",
              {in("logits", logits, normal(2)), integers("targets", {7}, targets(13, 3, kIgnoredTarget)),
               in("scale", {1}, constant(0.37)), out("losses", {7}), out("dlogits", logits)},
              run, {{3, 2}}, {{0, 4}});
}

// The same in two parts, each computing its columns' gradients from the statistics of both.
GradientCase split_loss() {
  const Shape logits{7, 13};
  const auto run = [](Tensors t, Stream& stream) {
    const Tensor statistics = t[5];
    for (const std::int64_t part : {0, 1})
      split_cross_entropy_statistics({.statistics = statistics.slice(0, part, 1).reshape({7, kLossStatistics}),
                                      .logits = t[0].slice(1, 7 * part, 7 - part),
                                      .targets = t[1],
                                      .first = 7 * part,
                                      .valid = 7 - part},
                                     stream);
    for (const std::int64_t part : {0, 1})
      split_cross_entropy({.losses = t[3],
                           .dlogits = t[4].slice(1, 7 * part, 7 - part),
                           .logits = t[0].slice(1, 7 * part, 7 - part),
                           .targets = t[1],
                           .statistics = statistics,
                           .scale = t[2],
                           .first = 7 * part,
                           .valid = 7 - part},
                          stream);
  };
  return make("split_cross_entropy", "some_ignored",
              {in("logits", logits, normal(2)), integers("targets", {7}, targets(13, 3, kIgnoredTarget)),
               in("scale", {1}, constant(0.37)), out("losses", {7}), out("dlogits", logits),
               out("statistics", {2, 7, kLossStatistics})},
              run, {{3, 2}}, {{0, 4}});
}

// In place: x becomes y, and the gradient that comes in becomes the one that goes on.
GradientCase turning() {
  const Shape x{2, 5, 3, 8}, table{5, 4};
  const auto run = [](Tensors t, Stream& stream) {
    rope_table({.cos = t[2], .sin = t[3], .positions = t[4], .theta = 100}, stream);
    rope({.x = t[0], .cos = t[2], .sin = t[3]}, stream);
    rope({.x = t[1], .cos = t[2], .sin = t[3], .inverse = true}, stream);
  };
  std::vector<Operand> operands = {in("x", x), in("dx", x), out("cos", table), out("sin", table),
                                   integers("positions", {5}, positions(2, 3))};
  operands[0].role = operands[1].role = Role::inout;
  return make("rope", "2x5x3x8", operands, run, {{0, 1}}, {{0, 1}});
}

GradientCase dropping() {
  const Shape x{14, 5};
  const auto run = [](Tensors t, Stream& stream) {
    dropout({.y = t[3], .x = t[0], .positions = t[2], .probability = 0.4, .key = 8}, stream);
    dropout({.y = t[4], .x = t[1], .positions = t[2], .probability = 0.4, .key = 8}, stream);
  };
  return make("dropout", "14x5",
              {in("x", x), in("dy", x), integers("positions", {7}, positions()), out("y", x), out("dx", x)}, run,
              {{3, 1}}, {{0, 4}});
}

struct AttentionShape {
  std::int64_t batch, queries, keys, heads, key_heads, width;
  bool causal;
  double dropout;
};

GradientCase attention(const AttentionShape& s) {
  const Shape q{s.batch, s.queries, s.heads, s.width}, k{s.batch, s.keys, s.key_heads, s.width};
  const AttentionDropout drop{
      .probability = s.dropout, .key = 3, .first_sample = 1, .first_head = 2, .first_query = 3, .first_key = 4};
  const auto run = [=](Tensors t, Stream& stream) {
    attention_forward(
        {.o = t[4], .lse = t[5], .q = t[0], .k = t[1], .v = t[2], .scale = 0.6, .causal = s.causal, .dropout = drop},
        stream);
    attention_backward({.dq = t[6],
                        .dk = t[7],
                        .dv = t[8],
                        .d_o = t[3],
                        .q = t[0],
                        .k = t[1],
                        .v = t[2],
                        .o = t[4],
                        .lse = t[5],
                        .scale = 0.6,
                        .causal = s.causal,
                        .dropout = drop},
                       stream);
  };
  const std::string shape = fmt::format("b{}_t{}_s{}_h{}_k{}_d{}{}{}", s.batch, s.queries, s.keys, s.heads, s.key_heads,
                                        s.width, s.causal ? "_causal" : "", s.dropout > 0 ? "_dropout" : "");
  return make("attention", shape,
              {in("q", q), in("k", k), in("v", k), in("d_o", q), out("o", q), out("lse", {s.batch, s.heads, s.queries}),
               out("dq", q), out("dk", k), out("dv", k)},
              run, {{4, 3}}, {{0, 6}, {1, 7}, {2, 8}});
}
}  // namespace

const std::vector<GradientCase>& gradient_cases() {
  static const std::vector<GradientCase> all = [] {
    std::vector<GradientCase> cases;
    for (const bool residual : {false, true}) {
      cases.push_back(rmsnorm({5, 13}, residual));
      cases.push_back(rmsnorm({3, 2, 7}, residual));
      cases.push_back(layernorm({5, 13}, residual));
    }
    for (const auto one : {swiglu, gelu, linear, embedding, loss, split_loss, turning, dropping})
      cases.push_back(one());
    for (const double dropout : {0.0, 0.3}) {
      cases.push_back(attention({2, 7, 7, 4, 2, 6, true, dropout}));
      cases.push_back(attention({1, 70, 70, 2, 1, 4, true, dropout}));  // more than one tile
      cases.push_back(attention({1, 5, 12, 3, 1, 8, true, dropout}));
      cases.push_back(attention({1, 9, 6, 2, 2, 5, false, dropout}));
    }
    return cases;
  }();
  return all;
}

}  // namespace lockstep::tests
