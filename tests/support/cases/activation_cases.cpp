#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

std::string shape_label(std::int64_t n, std::int64_t f, bool strided) {
  return label({n, f}) + (strided ? "_strided" : "");
}

void add_swiglu(Cases& cases, DType dtype, std::int64_t n, std::int64_t f, bool strided) {
  const auto gaps = row_gap(2, strided);
  KernelCase made{.op = "swiglu_forward", .shape = shape_label(n, f, strided), .dtype = dtype};
  made.operands = {{"y", {n, f}, dtype, Role::out, normal(), gaps},
                   {"gate_up", {n, 2 * f}, dtype, Role::in, normal(3), gaps}};
  made.run = [](Tensors t, Stream& stream) { swiglu_forward({.y = t[0], .gate_up = t[1]}, stream); };
  made.reference = [](Hosts t) { reference::swiglu_forward(t[0], t[1]); };
  cases.push_back(made);

  made.op = "swiglu_backward";
  made.operands = {{"d_gate_up", {n, 2 * f}, dtype, Role::out, normal(), gaps},
                   {"dy", {n, f}, dtype, Role::in, normal(), gaps},
                   {"gate_up", {n, 2 * f}, dtype, Role::in, normal(3), gaps}};
  made.run = [](Tensors t, Stream& stream) {
    swiglu_backward({.d_gate_up = t[0], .dy = t[1], .gate_up = t[2]}, stream);
  };
  made.reference = [](Hosts t) { reference::swiglu_backward(t[0], t[1], t[2]); };
  cases.push_back(made);

  KernelCase again = made;  // with forward's result once more
  again.shape += "_y";
  again.operands.push_back({"y", {n, f}, dtype, Role::out, normal(), gaps});
  again.run = [](Tensors t, Stream& stream) {
    swiglu_backward({.d_gate_up = t[0], .dy = t[1], .gate_up = t[2], .y = t[3]}, stream);
  };
  again.reference = [](Hosts t) {
    reference::swiglu_forward(t[3], t[2]);
    reference::swiglu_backward(t[0], t[1], t[2]);
  };
  cases.push_back(again);

  again.shape += "_in_place";  // y goes into dy, the gradient into gate_up
  again.plain = false;
  again.operands = {again.operands[1], again.operands[2]};
  again.operands[0].role = again.operands[1].role = Role::inout;
  again.run = [](Tensors t, Stream& stream) {
    swiglu_backward({.d_gate_up = t[1], .dy = t[0], .gate_up = t[1], .y = t[0]}, stream);
  };
  again.reference = [](Hosts t) {
    const HostTensor dy = t[0];
    reference::swiglu_forward(t[0], t[1]);
    reference::swiglu_backward(t[1], dy, t[1]);
  };
  cases.push_back(again);

  made.shape += "_in_place";
  made.plain = false;
  made.operands.erase(made.operands.begin());
  made.operands[1].role = Role::inout;
  made.run = [](Tensors t, Stream& stream) {
    swiglu_backward({.d_gate_up = t[1], .dy = t[0], .gate_up = t[1]}, stream);
  };
  made.reference = [](Hosts t) { reference::swiglu_backward(t[1], t[0], t[1]); };
  cases.push_back(made);
}

void add_gelu(Cases& cases, DType dtype, std::int64_t n, std::int64_t f, bool strided) {
  const auto gaps = row_gap(2, strided);
  const Shape shape{n, f};
  KernelCase made{.op = "gelu_forward", .shape = shape_label(n, f, strided), .dtype = dtype};
  made.operands = {{"y", shape, dtype, Role::out, normal(), gaps}, {"x", shape, dtype, Role::in, normal(2), gaps}};
  made.run = [](Tensors t, Stream& stream) { gelu_forward({.y = t[0], .x = t[1]}, stream); };
  made.reference = [](Hosts t) { reference::gelu_forward(t[0], t[1]); };
  cases.push_back(made);

  made.op = "gelu_backward";
  made.operands = {{"dx", shape, dtype, Role::out, normal(), gaps},
                   {"dy", shape, dtype, Role::in, normal(), gaps},
                   {"x", shape, dtype, Role::in, normal(2), gaps}};
  made.run = [](Tensors t, Stream& stream) { gelu_backward({.dx = t[0], .dy = t[1], .x = t[2]}, stream); };
  made.reference = [](Hosts t) { reference::gelu_backward(t[0], t[1], t[2]); };
  cases.push_back(made);

  KernelCase again = made;  // with forward's result once more
  again.shape += "_y";
  again.operands.push_back({"y", shape, dtype, Role::out, normal(), gaps});
  again.run = [](Tensors t, Stream& stream) { gelu_backward({.dx = t[0], .dy = t[1], .x = t[2], .y = t[3]}, stream); };
  again.reference = [](Hosts t) {
    reference::gelu_forward(t[3], t[2]);
    reference::gelu_backward(t[0], t[1], t[2]);
  };
  cases.push_back(again);

  again.shape += "_in_place";  // y goes into dy, the gradient into x
  again.plain = false;
  again.operands = {again.operands[1], again.operands[2]};
  again.operands[0].role = again.operands[1].role = Role::inout;
  again.run = [](Tensors t, Stream& stream) { gelu_backward({.dx = t[1], .dy = t[0], .x = t[1], .y = t[0]}, stream); };
  again.reference = [](Hosts t) {
    const HostTensor dy = t[0];
    reference::gelu_forward(t[0], t[1]);
    reference::gelu_backward(t[1], dy, t[1]);
  };
  cases.push_back(again);

  made.plain = false;
  made.operands.erase(made.operands.begin());
  for (const int into : {0, 1}) {  // dx is dy, dx is x
    KernelCase in_place = made;
    in_place.shape += into == 0 ? "_into_dy" : "_into_x";
    in_place.operands[into].role = Role::inout;
    in_place.run = [into](Tensors t, Stream& stream) { gelu_backward({.dx = t[into], .dy = t[0], .x = t[1]}, stream); };
    in_place.reference = [into](Hosts t) { reference::gelu_backward(t[into], t[0], t[1]); };
    cases.push_back(in_place);
  }
}
}  // namespace

Cases activation_cases(DType dtype) {
  Cases cases;
  for (const auto [n, f] :
       {std::array<std::int64_t, 2>{1, 1}, {7, 13}, {3, 5000}, {31, 64}, {13, 257}, {1, 20000}, {257, 7}})
    for (const bool strided : {false, true}) {
      add_swiglu(cases, dtype, n, f, strided);
      add_gelu(cases, dtype, n, f, strided);
    }
  return cases;
}

}  // namespace lockstep::tests
