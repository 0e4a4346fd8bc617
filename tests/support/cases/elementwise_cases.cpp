#include "kernels/elementwise.h"

#include "kernels/bias.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

KernelCase add_case(DType dtype, std::int64_t n) {
  KernelCase made{.op = "add", .shape = label({n}), .dtype = dtype};
  made.operands = {{"y", {n}, dtype, Role::out}, {"a", {n}, dtype}, {"b", {n}, dtype, Role::in, magnitudes(-8, 8)}};
  made.run = [](Tensors t, Stream& stream) { add({.y = t[0], .a = t[1], .b = t[2]}, stream); };
  made.reference = [](Hosts t) { reference::add(t[0], t[1], t[2]); };
  return made;
}

KernelCase add_in_place(DType dtype, std::int64_t n, bool into_b) {
  KernelCase made = add_case(dtype, n);
  made.shape += into_b ? "_into_b" : "_into_a";
  made.operands.erase(made.operands.begin());
  made.operands[into_b].role = Role::inout;
  made.plain = false;
  made.run = [into_b](Tensors t, Stream& stream) { add({.y = t[into_b], .a = t[0], .b = t[1]}, stream); };
  made.reference = [into_b](Hosts t) { reference::add(t[into_b], t[0], t[1]); };
  return made;
}

KernelCase cast_case(DType to, DType from, std::int64_t n) {
  KernelCase made{.op = "cast", .shape = label({n}) + "_from_" + std::string(name_of(from)), .dtype = to};
  made.operands = {{"y", {n}, to, Role::out}, {"x", {n}, from, Role::in, magnitudes(-20, 12)}};
  made.run = [](Tensors t, Stream& stream) { cast({.y = t[0], .x = t[1]}, stream); };
  made.reference = [](Hosts t) {
    for (std::int64_t i = 0; i < t[0].elements(); ++i) t[0].set(i, round_to(t[0].dtype, t[1][i]), std::abs(t[1][i]));
  };
  return made;
}

KernelCase scale_case(DType dtype, std::int64_t n, bool in_place) {
  constexpr double kFactor = 1.375;
  KernelCase made{.op = "scale", .shape = label({n}) + (in_place ? "_in_place" : ""), .dtype = dtype};
  made.operands = {{"y", {n}, dtype, Role::out}, {"x", {n}, dtype, Role::in, magnitudes(-8, 8)}};
  if (in_place) {
    made.operands.erase(made.operands.begin());
    made.operands[0].role = Role::inout;
    made.plain = false;
  }
  made.run = [](Tensors t, Stream& stream) { scale({.y = t[0], .x = t.back(), .factor = kFactor}, stream); };
  made.reference = [](Hosts t) {
    for (std::int64_t i = 0; i < t[0].elements(); ++i) {
      const double x = t.back()[i];
      t[0].set(i, kFactor * x, std::abs(kFactor * x));
    }
  };
  return made;
}

KernelCase fill_case(DType dtype, std::int64_t n, double value) {
  KernelCase made{.op = "fill", .shape = label({n}) + (value == 0 ? "_zero" : "_value"), .dtype = dtype};
  made.operands = {{"y", {n}, dtype, Role::out}};
  made.run = [value](Tensors t, Stream& stream) { fill({.y = t[0], .value = value}, stream); };
  made.reference = [value](Hosts t) { t[0].value.assign(t[0].value.size(), value); };
  return made;
}

KernelCase bias_case(DType dtype, const Shape& dy, DType gradient, bool accumulate, bool strided) {
  KernelCase made{.op = "bias_backward", .shape = label({dy[0], dy[1]}), .dtype = dtype};
  made.shape += (strided ? "_strided" : "") + gradient_label(dtype, gradient, accumulate);
  made.operands = {{"dbias", {dy[1]}, gradient, accumulate ? Role::inout : Role::out},
                   {"dy", dy, dtype, Role::in, normal(), row_gap(2, strided)}};
  made.run = [accumulate](Tensors t, Stream& stream) {
    bias_backward({.dbias = t[0], .dy = t[1], .accumulate = accumulate}, stream);
  };
  made.reference = [accumulate](Hosts t) { reference::bias_backward(t[0], t[1], accumulate); };
  return made;
}
}  // namespace

Cases elementwise_cases(DType dtype) {
  Cases cases;
  for (const std::int64_t n : {1, 13, 257, 5000, 100003}) {
    cases.push_back(add_case(dtype, n));
    cases.push_back(add_in_place(dtype, n, false));
    cases.push_back(add_in_place(dtype, n, true));
    for (const DType from : kFloatTypes) cases.push_back(cast_case(dtype, from, n));
    for (const bool in_place : {false, true}) cases.push_back(scale_case(dtype, n, in_place));
    cases.push_back(fill_case(dtype, n, 0));
    cases.push_back(fill_case(dtype, n, -1.7));
  }
  cases.push_back(unaligned(add_case(dtype, 1001)));
  for (const DType from : kFloatTypes) cases.push_back(unaligned(cast_case(dtype, from, 1001)));
  cases.push_back(unaligned(scale_case(dtype, 1001, false)));
  cases.push_back(unaligned(fill_case(dtype, 1001, -1.7)));
  for (const Shape& dy : {Shape{1, 1}, Shape{7, 13}, Shape{257, 31}, Shape{2, 5000}, Shape{1031, 20}, Shape{4099, 3}})
    for (const bool strided : {false, true})
      for (const DType gradient : gradient_types(dtype))
        for (const bool accumulate : {false, true})
          cases.push_back(bias_case(dtype, dy, gradient, accumulate, strided));
  return cases;
}

}  // namespace lockstep::tests
