// The table of kernel cases: for every kernel, the calls that prove it, on any device.
//
// One table serves parity with the references (and so between devices), equality over thread counts, what `meta`
// counts, refusal of broken calls, and speed. A case is data: operands with shapes, types, gaps and recipes for their
// elements, and how to call the kernel on them. support/case_run.h turns it into real operands on a device.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/host_tensor.h"
#include "support/recipes.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep::tests {

enum class Role { in, out, inout };

struct Operand {
  std::string name;  // as in the kernel's Args
  Shape shape;
  DType dtype;
  Role role = Role::in;
  Recipe fill = normal();
  // The operand is cut out of a buffer this much larger in each dim, half of it in front: rows get gaps, and starts no
  // alignment.
  std::array<std::int64_t, Shape::kMaxDims> gaps = {};
};

struct KernelCase {
  std::string op;            // the contract's function
  std::string shape;         // what sets this case apart from the others of the op
  DType dtype = DType::f32;  // of the activations or elements the case is about
  std::vector<Operand> operands = {};
  std::function<void(std::span<const Tensor>, Stream&)> run = {};
  // Inputs that follow from other inputs (a norm's rstd, attention's lse), in terms of the rounded inputs.
  std::function<void(std::span<HostTensor>)> prepare = {};
  // What the outputs are, in double; none where the contract leaves the values open (random numbers).
  std::function<void(std::span<HostTensor>)> reference = {};
  // The operands are the kernel's arguments one by one: none is a view of two, or passed twice.
  bool plain = true;

  std::string name() const { return op + "_" + shape + "_" + std::string(name_of(dtype)); }
};

inline constexpr DType kFloatTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

// Every case of every kernel in every type, at sizes that are quick even without vector units.
const std::vector<KernelCase>& kernel_cases();
// Cases at the sizes of real models, for benchmarks; their work is what they count on `meta`.
std::vector<KernelCase> speed_cases(DType dtype);

}  // namespace lockstep::tests
