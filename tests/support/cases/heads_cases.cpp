#include "kernels/heads.h"

#include <limits>

#include "kernels/attention_merge.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;
using Gaps = std::array<std::int64_t, Shape::kMaxDims>;

// Where heads lie: side by side; anywhere; and apart, but each at a whole pack of 16 bytes where the width allows it.
struct Lying {
  const char* name;
  Gaps one, other;
};
constexpr Lying kLying[] = {
    {"", {}, {}}, {"_strided", {1, 2, 1, 3}, {0, 1, 2, 5}}, {"_apart", {0, 2, 4, 0}, {2, 0, 2, 16}}};

KernelCase copy_case(DType to, DType from, const Shape& s, const Lying& lying, bool accumulate) {
  KernelCase made{.op = "copy_heads", .shape = label({s[0], s[1], s[2], s[3]}) + lying.name, .dtype = to};
  made.shape += std::string(accumulate ? "_accumulate" : "") + "_from_" + std::string(name_of(from));
  made.operands = {{"y", s, to, accumulate ? Role::inout : Role::out, normal(), lying.one},
                   {"x", s, from, Role::in, magnitudes(-20, 12), lying.other}};
  made.run = [=](Tensors t, Stream& stream) { copy_heads({.y = t[0], .x = t[1], .accumulate = accumulate}, stream); };
  made.reference = [=](Hosts t) { reference::copy_heads(t[0], t[1], accumulate); };
  return made;
}

// Some queries have seen no keys: every fifth here, every third there.
Recipe statistics(int without) {
  return [without](std::uint64_t seed, std::int64_t i) {
    return i % without == 2 ? -std::numeric_limits<double>::infinity() : normal(3)(seed, i);
  };
}

KernelCase merge_case(DType dtype, DType result, const Shape& s, const Lying& lying, bool first) {
  KernelCase made{.op = "attention_merge", .shape = label({s[0], s[1], s[2], s[3]}) + lying.name, .dtype = dtype};
  made.shape += std::string(first ? "_first" : "") + (result == dtype ? "" : "_to_" + std::string(name_of(result)));
  const Role role = first ? Role::out : Role::inout;
  const Shape rows{s[0], s[2], s[1]};
  made.operands = {{"o", s, result, role, normal(), lying.one},
                   {"lse", rows, accumulator_of(dtype), role, statistics(5)},
                   {"part", s, dtype, Role::in, normal(), lying.other},
                   {"part_lse", rows, accumulator_of(dtype), Role::in, statistics(3)}};
  made.run = [=](Tensors t, Stream& stream) {
    attention_merge({.o = t[0], .lse = t[1], .part = t[2], .part_lse = t[3], .first = first}, stream);
  };
  made.reference = [=](Hosts t) { reference::attention_merge(t[0], t[1], t[2], t[3], first); };
  return made;
}
}  // namespace

Cases heads_cases(DType dtype) {
  Cases cases;
  for (const Shape& s : {Shape{1, 1, 1, 1}, Shape{2, 7, 3, 5}, Shape{3, 5, 2, 80}, Shape{2, 150, 3, 64}})
    for (const Lying& lying : kLying)
      for (const bool flag : {false, true}) {
        for (const DType from : kFloatTypes) cases.push_back(copy_case(dtype, from, s, lying, flag));
        for (const DType result : gradient_types(dtype)) cases.push_back(merge_case(dtype, result, s, lying, flag));
      }
  return cases;
}

}  // namespace lockstep::tests
