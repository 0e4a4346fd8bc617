#include "kernels/cross_entropy.h"

#include "support/cases/cross_entropy_cases.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

// Operands: losses, logits, targets, scale, dlogits.
KernelCase make_cross_entropy(DType dtype, std::int64_t n, std::int64_t v, const CrossEntropyKind& kind) {
  const auto gaps = row_gap(2, kind.strided);
  KernelCase made{.op = "cross_entropy", .shape = label({n, v}), .dtype = dtype};
  made.shape += std::string(kind.gradient ? "" : "_loss_only") + (kind.in_place ? "_in_place" : "") +
                (kind.strided ? "_strided" : "") + (kind.to == dtype ? "" : "_to_" + std::string(name_of(kind.to)));
  made.operands = {{"losses", {n}, accumulator_of(dtype), Role::out},
                   {"logits", {n, v}, dtype, kind.in_place ? Role::inout : Role::in, normal(3), gaps},
                   {"targets", {n}, DType::i32, Role::in, targets(v, 3, kIgnoredTarget)},
                   loss_scale(dtype, kind)};
  const bool own = kind.gradient && !kind.in_place;
  if (own) made.operands.push_back({"dlogits", {n, v}, kind.to, Role::out, normal(), gaps});
  const int dlogits = own ? 4 : 1;
  made.plain = !kind.in_place;
  made.run = [=](Tensors t, Stream& stream) {
    cross_entropy({.losses = t[0],
                   .dlogits = kind.gradient ? t[dlogits] : Tensor(),
                   .logits = t[1],
                   .targets = t[2],
                   .scale = t[3]},
                  stream);
  };
  made.reference = [=](Hosts t) {
    reference::cross_entropy(t[0], kind.gradient ? &t[dlogits] : nullptr, t[1], t[2], t[3][0]);
  };
  return made;
}
}  // namespace

Cases cross_entropy_cases(DType dtype) {
  Cases cases;
  for (const auto [n, v] : {std::array<std::int64_t, 2>{1, 1}, {7, 13}, {5, 257}, {3, 50257}, {33, 1000}, {130, 31}})
    for (const bool strided : {false, true}) {
      cases.push_back(make_cross_entropy(dtype, n, v, {.strided = strided, .to = dtype}));
      cases.push_back(make_cross_entropy(dtype, n, v, {.gradient = false, .strided = strided, .to = dtype}));
      cases.push_back(make_cross_entropy(dtype, n, v, {.in_place = true, .strided = strided, .to = dtype}));
      if (dtype == DType::f32)
        for (const DType to : {DType::bf16, DType::f16})
          cases.push_back(make_cross_entropy(dtype, n, v, {.strided = strided, .to = to}));
    }
  return cases;
}

}  // namespace lockstep::tests
