#include "support/norm_again.h"

#include <fmt/format.h>

#include <bit>

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "support/case_run.h"
#include "support/cases/norm_cases.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;

// Operands: 0 kept, 1 again, 2 dx, 3 rstd, 4 mean, 5 x, 6 dy, 7 dresidual, 8 weight, 9 bias.
KernelCase twice(const std::string& op, DType dtype, const Shape& x, bool strided) {
  const Shape rows = statistics_shape(x);
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made = norm_case(op, dtype, x, strided);
  made.operands = {
      {"kept", x, dtype, Role::out, normal(), gaps},        {"again", x, dtype, Role::out, normal(), gaps},
      {"dx", x, dtype, Role::out, normal(), gaps},          {"rstd", rows, accumulator_of(dtype), Role::out},
      {"mean", rows, accumulator_of(dtype), Role::out},     {"x", x, dtype, Role::in, normal(3, 1), gaps},
      {"dy", x, dtype, Role::in, normal(), gaps},           {"dresidual", x, dtype, Role::in, normal(), gaps},
      {"weight", {x[-1]}, dtype, Role::in, normal(0.5, 1)}, {"bias", {x[-1]}, dtype, Role::in}};
  return made;
}

KernelCase rmsnorm_twice(DType dtype, const Shape& x, bool strided) {
  KernelCase made = twice("rmsnorm", dtype, x, strided);
  made.run = [](Tensors t, Stream& stream) {
    rmsnorm_forward({.y = t[0], .rstd = t[3], .x = t[5], .weight = t[8], .eps = kNormEps}, stream);
    rmsnorm_backward_input(
        {.dx = t[2], .dy = t[6], .x = t[5], .weight = t[8], .rstd = t[3], .dresidual = t[7], .y = t[1]}, stream);
  };
  return made;
}

KernelCase layernorm_twice(DType dtype, const Shape& x, bool strided) {
  KernelCase made = twice("layernorm", dtype, x, strided);
  made.run = [](Tensors t, Stream& stream) {
    layernorm_forward({.y = t[0], .mean = t[4], .rstd = t[3], .x = t[5], .weight = t[8], .bias = t[9], .eps = kNormEps},
                      stream);
    layernorm_backward_input({.dx = t[2],
                              .dy = t[6],
                              .x = t[5],
                              .weight = t[8],
                              .mean = t[4],
                              .rstd = t[3],
                              .dresidual = t[7],
                              .y = t[1],
                              .bias = t[9]},
                             stream);
  };
  return made;
}
}  // namespace

std::vector<KernelCase> norms_again() {
  std::vector<KernelCase> cases;
  for (const DType dtype : kFloatTypes)
    for (const bool strided : {false, true}) {
      // One of each way a GPU shares out a row, and an odd one.
      for (const Shape& x : {Shape{37, 64}, Shape{9, 512}, Shape{5, 2048}, Shape{3, 4096}, Shape{3, 5000}, Shape{7, 13},
                             Shape{2, 20000}}) {
        cases.push_back(rmsnorm_twice(dtype, x, strided));
        cases.push_back(layernorm_twice(dtype, x, strided));
      }
      cases.push_back(rmsnorm_twice(dtype, {5, 7, 64}, strided));
    }
  return cases;
}

std::string difference_of_norms(const KernelCase& twice, Memory& memory, Stream& stream) {
  CaseRun run(twice, memory);
  run.run(stream);
  if (const std::string trespass = run.trespass(); !trespass.empty()) return trespass;
  const HostTensor kept = run.read(0), again = run.read(1);
  for (std::int64_t i = 0; i < kept.elements(); ++i)
    if (std::isnan(kept[i]) || std::bit_cast<std::uint64_t>(kept[i]) != std::bit_cast<std::uint64_t>(again[i]))
      return fmt::format("{}: element {} is {} of forward, {} of backward", twice.name(), i, kept[i], again[i]);
  return "";
}

}  // namespace lockstep::tests
