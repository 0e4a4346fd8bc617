#include "kernels/embedding.h"

#include <ranges>

#include "kernels/rope.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

struct EmbeddingSize {
  std::int64_t batch, length, width, vocabulary;
};

// The rows of the table that a case's operand holds: all, or about the middle third.
struct Held {
  Held(std::int64_t vocabulary, bool part)
      : part(part), first(part ? vocabulary / 3 : 0), rows(part ? (vocabulary + 2) / 3 : vocabulary) {}
  std::optional<std::int64_t> reference() const { return part ? std::optional(first) : std::nullopt; }
  bool part;
  std::int64_t first, rows;
};

// `restarts`: every sample has positions of its own.
KernelCase embedding(DType dtype, const EmbeddingSize& s, bool positioned, bool strided, bool part,
                     bool restarts = false) {
  const Held held(s.vocabulary, part);
  KernelCase made{.op = "embedding_forward", .shape = label({s.batch, s.length, s.width}), .dtype = dtype};
  made.shape += "_v" + std::to_string(s.vocabulary) + (positioned ? "_positions" : "") + (restarts ? "_restarts" : "") +
                (strided ? "_strided" : "") + (part ? "_part" : "");
  const auto gaps = row_gap(2, strided);
  made.operands = {{"y", {s.batch, s.length, s.width}, dtype, Role::out},
                   {"table", {held.rows, s.width}, dtype, Role::in, normal(), gaps},
                   {"tokens", {s.batch, s.length}, DType::i32, Role::in, indices(s.vocabulary)}};
  if (positioned) {
    made.operands.push_back({"position_table", {2 * s.length + 7, s.width}, dtype, Role::in, normal(), gaps});
    if (restarts)
      made.operands.push_back({"positions", {s.batch, s.length}, DType::i32, Role::in, indices(2 * s.length + 7)});
    else
      made.operands.push_back({"positions", {s.length}, DType::i32, Role::in, positions(6, 2)});
  }
  made.run = [=](Tensors t, Stream& stream) {
    embedding_forward({.y = t[0],
                       .table = t[1],
                       .tokens = t[2],
                       .position_table = positioned ? t[3] : Tensor(),
                       .positions = positioned ? t[4] : Tensor(),
                       .part = part,
                       .first = held.first},
                      stream);
  };
  made.reference = [=](Hosts t) {
    reference::embedding_forward(t[0], t[1], t[2], positioned ? &t[3] : nullptr, positioned ? &t[4] : nullptr,
                                 held.reference());
  };
  return made;
}

KernelCase embedding_gradient(DType dtype, const EmbeddingSize& s, DType gradient, bool shared, bool accumulate,
                              bool part) {
  const Held held(s.vocabulary, part);
  KernelCase made{.op = "embedding_backward", .shape = label({s.batch, s.length, s.width}), .dtype = dtype};
  made.shape += "_v" + std::to_string(s.vocabulary) + (shared ? "_shared" : "") + (accumulate ? "_accumulate" : "") +
                (part ? "_part" : "") + (gradient == dtype ? "" : "_to_" + std::string(name_of(gradient)));
  made.operands = {
      {"dtable", {held.rows, s.width}, gradient, accumulate ? Role::inout : Role::out},
      {"dy", {s.batch, s.length, s.width}, dtype},
      {"indices", shared ? Shape{s.length} : Shape{s.batch, s.length}, DType::i32, Role::in, indices(s.vocabulary)}};
  made.run = [=](Tensors t, Stream& stream) {
    embedding_backward(
        {.dtable = t[0], .dy = t[1], .indices = t[2], .accumulate = accumulate, .part = part, .first = held.first},
        stream);
  };
  made.reference = [=](Hosts t) { reference::embedding_backward(t[0], t[1], t[2], accumulate, held.reference()); };
  return made;
}

KernelCase table(DType dtype, std::int64_t length, std::int64_t width, std::int64_t step,
                 std::optional<RopeSlowing> slowing) {
  KernelCase made{.op = "rope_table", .shape = label({length, width}), .dtype = dtype};
  made.shape += "_by" + std::to_string(step) + (slowing ? "_slowed" : "");
  made.operands = {{"cos", {length, width / 2}, accumulator_of(dtype), Role::out},
                   {"sin", {length, width / 2}, accumulator_of(dtype), Role::out},
                   {"positions", {length}, DType::i32, Role::in, positions(3, step)}};
  const double theta = slowing ? 500000 : 10000;
  made.run = [=](Tensors t, Stream& stream) {
    rope_table({.cos = t[0], .sin = t[1], .positions = t[2], .theta = theta, .slowing = slowing}, stream);
  };
  made.reference = [=](Hosts t) { reference::rope_table(t[0], t[1], t[2], theta, slowing); };
  return made;
}

// `rows`: of the tables, where every sample has positions of its own.
KernelCase turn(DType dtype, const Shape& x, bool inverse, bool strided, std::int64_t rows = 0) {
  KernelCase made{.op = "rope", .shape = label({x[0], x[1], x[2], x[3]}), .dtype = dtype};
  made.shape += std::string(inverse ? "_inverse" : "") + (strided ? "_strided" : "") +
                (rows > 0 ? "_of_" + std::to_string(rows) : "");
  const Shape tables{rows > 0 ? rows : x[1], x[3] / 2};
  made.operands = {
      {"x", x, dtype, Role::inout}, {"cos", tables, accumulator_of(dtype)}, {"sin", tables, accumulator_of(dtype)}};
  if (strided) made.operands[0].gaps = {0, 1, 2, 5};
  if (rows > 0) made.operands.push_back({"positions", {x[0], x[1]}, DType::i32, Role::in, indices(rows)});
  made.prepare = [](Hosts t) {
    HostTensor at("positions", {t[1].dim(0)}, DType::i32);
    for (std::int64_t i = 0; i < at.elements(); ++i) at.value[i] = static_cast<double>(i);
    reference::rope_table(t[1], t[2], at, 10000, {});
  };
  made.run = [=](Tensors t, Stream& stream) {
    rope({.x = t[0], .cos = t[1], .sin = t[2], .inverse = inverse, .positions = rows > 0 ? t[3] : Tensor()}, stream);
  };
  made.reference = [=](Hosts t) { reference::rope(t[0], t[1], t[2], inverse, rows > 0 ? &t[3] : nullptr); };
  return made;
}
}  // namespace

Cases token_cases(DType dtype) {
  Cases cases;
  const std::vector<DType> gradients = gradient_types(dtype);
  for (const EmbeddingSize& size : {EmbeddingSize{1, 1, 1, 3},
                                    {2, 7, 13, 31},
                                    {3, 65, 64, 50},
                                    {2, 5, 257, 1000},
                                    {1, 200, 5, 7},
                                    {1, 1000, 64, 3}}) {
    for (const bool part : {false, true})
      for (const bool positioned : {false, true})
        for (const bool strided : {false, true}) cases.push_back(embedding(dtype, size, positioned, strided, part));
    cases.push_back(embedding(dtype, size, true, true, false, true));
    for (const DType gradient : std::views::reverse(gradients))
      for (const bool shared : {false, true})
        for (const bool accumulate : {false, true})
          for (const bool part : {false, true})
            cases.push_back(embedding_gradient(dtype, size, gradient, shared, accumulate, part));
  }
  const RopeSlowing slowing{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 8192};
  for (const std::int64_t width : {2, 6, 64, 128, 256})
    for (const std::int64_t step : {1, 1009}) {
      cases.push_back(table(dtype, 13, width, step, {}));
      cases.push_back(table(dtype, 65, width, step, slowing));
    }
  for (const Shape& x :
       {Shape{1, 1, 1, 2}, Shape{2, 7, 3, 6}, Shape{1, 65, 2, 64}, Shape{3, 13, 5, 80}, Shape{1, 3, 1, 256}})
    for (const bool inverse : {false, true})
      for (const bool strided : {false, true}) {
        cases.push_back(turn(dtype, x, inverse, strided));
        if (x[1] > 1) cases.push_back(turn(dtype, x, inverse, strided, x[1] + 4));
      }
  return cases;
}

}  // namespace lockstep::tests
