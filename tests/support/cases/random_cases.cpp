#include "kernels/random.h"

#include "support/cases/families.h"
#include "support/reference_random.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;

KernelCase init(DType dtype, std::int64_t n, std::int64_t first) {
  KernelCase made{.op = "init_normal", .shape = label({n}) + "_from" + std::to_string(first), .dtype = dtype};
  made.operands = {{"x", {n}, dtype, Role::out}};
  made.run = [first](Tensors t, Stream& stream) {
    init_normal({.x = t[0], .key = 99, .first = first, .std = 0.02}, stream);
  };
  made.reference = [first](std::span<HostTensor> t) { reference::init_normal(t[0], 99, first, 0.02); };
  return made;
}

// Rows of a larger matrix.
KernelCase init_rows(DType dtype, std::int64_t n, std::int64_t row, std::int64_t pitch) {
  KernelCase made{.op = "init_normal", .shape = label({n}) + "_rows_of_" + label({row, pitch}), .dtype = dtype};
  made.operands = {{"x", {n}, dtype, Role::out}};
  made.run = [=](Tensors t, Stream& stream) {
    init_normal({.x = t[0], .key = 99, .first = 5, .std = 0.02, .row = row, .pitch = pitch}, stream);
  };
  made.reference = [=](std::span<HostTensor> t) { reference::init_normal(t[0], 99, 5, 0.02, row, pitch); };
  return made;
}

KernelCase drop(DType dtype, const Shape& x, std::int64_t length, double probability, bool in_place) {
  KernelCase made{.op = "dropout", .shape = label({x[0], x[1]}) + "_of" + std::to_string(length), .dtype = dtype};
  made.shape += std::string(probability == 0 ? "_none" : "") + (in_place ? "_in_place" : "");
  made.operands = {{"x", x, dtype, in_place ? Role::inout : Role::in},
                   {"positions", {length}, DType::i32, Role::in, positions(5, 3)}};
  if (!in_place) made.operands.push_back({"y", x, dtype, Role::out});
  made.plain = !in_place;
  made.run = [=](Tensors t, Stream& stream) {
    dropout({.y = t[in_place ? 0 : 2],
             .x = t[0],
             .positions = t[1],
             .probability = probability,
             .key = 5,
             .first_sample = 3,
             .first_row = 2},
            stream);
  };
  made.reference = [=](std::span<HostTensor> t) {
    reference::dropout(t[in_place ? 0 : 2], t[0], t[1],
                       {.probability = probability, .key = 5, .first_sample = 3, .first_row = 2});
  };
  return made;
}
}  // namespace

Cases random_cases(DType dtype) {
  Cases cases;
  for (const std::int64_t n : {1, 7, 257, 5001})
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{3}, (std::int64_t{1} << 40) + 1})
      cases.push_back(init(dtype, n, first));
  for (const auto& [n, row, pitch] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {7, 1, 3}, {257, 6, 13}, {5001, 65, 64 * 4 + 1}, {40, 64, 64}})
    cases.push_back(init_rows(dtype, n, row, pitch));
  for (const auto& [x, length] : {std::pair<Shape, std::int64_t>{{1, 1}, 1},
                                  {{14, 13}, 7},
                                  {{93, 257}, 31},
                                  {{65, 64}, 65},
                                  {{11, 5}, 40}})  // part of a sample
    for (const double probability : {0.0, 0.25})
      for (const bool in_place : {false, true}) cases.push_back(drop(dtype, x, length, probability, in_place));
  return cases;
}

}  // namespace lockstep::tests
