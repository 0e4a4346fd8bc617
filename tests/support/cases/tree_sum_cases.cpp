#include "kernels/tree_sum.h"

#include "support/cases/families.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

// An order of sums to be asked for.
struct Order {
  const char* name;
  std::vector<std::uint8_t> (*joins)(int);
};

std::vector<std::uint8_t> chain(int operands) {
  std::vector<std::uint8_t> joins(static_cast<std::size_t>(operands), 1);
  joins[0] = 0;
  return joins;
}
constexpr Order kBalanced{"balanced", balanced_joins}, kChain{"chain", chain};

const char* name_of_reduction(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::mean ? "mean" : "max";
}

// The ins begin at operand `first_in`; the first `outs` operands are written, and may be ins.
void reference(Hosts t, int outs, int first_in, Reduction reduction) {
  const int ins = static_cast<int>(t.size()) - first_in;
  for (std::int64_t i = 0; i < t[0].elements(); ++i) {
    Sum sum;
    double largest = t[first_in][i];
    for (int n = 0; n < ins; ++n) {
      sum.add(t[first_in + n][i]);
      const double x = t[first_in + n][i];
      if (x > largest || std::isnan(x)) largest = x;
    }
    const double by = reduction == Reduction::mean ? ins : 1;
    for (int n = 0; n < outs; ++n) {
      if (reduction == Reduction::max)
        t[n].set(i, largest, std::abs(largest));
      else
        t[n].set(i, sum.value / by, sum.size / by);
    }
  }
  for (int n = 0; n < outs; ++n) t[n].terms = ins;
}

Recipe elements_of(DType dtype) { return is_float(dtype) ? magnitudes(-8, 8) : indices(100000); }

KernelCase apart(DType dtype, std::int64_t n, int ins, int outs, Reduction reduction, const Order& order) {
  KernelCase made{.op = "tree_sum", .shape = label({n}), .dtype = dtype};
  made.shape += fmt::format("_{}_to_{}_{}_{}", ins, outs, name_of_reduction(reduction), order.name);
  for (int i = 0; i < outs; ++i) made.operands.push_back({fmt::format("outs[{}]", i), {n}, dtype, Role::out});
  for (int i = 0; i < ins; ++i)
    made.operands.push_back({fmt::format("ins[{}]", i), {n}, dtype, Role::in, elements_of(dtype)});
  made.run = [ins, outs, reduction, joins = order.joins(ins)](Tensors t, Stream& stream) {
    const std::vector<ConstTensor> from(t.begin() + outs, t.end());
    tree_sum({.outs = t.first(outs), .ins = from, .joins = joins, .reduction = reduction}, stream);
  };
  made.reference = [outs, reduction](Hosts t) { reference(t, outs, outs, reduction); };
  return made;
}

// As an all-reduce has it: the first `into` operands are read and written.
KernelCase in_place(DType dtype, std::int64_t n, int ins, int into, Reduction reduction, const Order& order) {
  KernelCase made{.op = "tree_sum", .shape = label({n}), .dtype = dtype, .plain = false};
  made.shape += fmt::format("_{}_into_{}_{}_{}", ins, into, name_of_reduction(reduction), order.name);
  for (int i = 0; i < ins; ++i)
    made.operands.push_back(
        {fmt::format("ins[{}]", i), {n}, dtype, i < into ? Role::inout : Role::in, elements_of(dtype)});
  made.run = [into, reduction, joins = order.joins(ins)](Tensors t, Stream& stream) {
    const std::vector<ConstTensor> from(t.begin(), t.end());
    tree_sum({.outs = t.first(into), .ins = from, .joins = joins, .reduction = reduction}, stream);
  };
  made.reference = [into, reduction](Hosts t) { reference(t, into, 0, reduction); };
  return made;
}

void add_all(Cases& cases, DType dtype) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
    if (reduction == Reduction::mean && !is_float(dtype)) continue;
    for (const std::int64_t n : {1, 13, 513, 20011}) {
      cases.push_back(apart(dtype, n, 1, 1, reduction, kBalanced));
      cases.push_back(apart(dtype, n, 3, 1, reduction, kBalanced));
      cases.push_back(in_place(dtype, n, 2, 2, reduction, kBalanced));
      cases.push_back(in_place(dtype, n, 7, 7, reduction, kChain));
    }
    cases.push_back(apart(dtype, 1000, 5, 3, reduction, kChain));
    cases.push_back(in_place(dtype, 700, 16, 5, reduction, kBalanced));
    cases.push_back(in_place(dtype, 70, 37, 37, reduction, kBalanced));  // more than a launch's short list
    cases.push_back(unaligned(apart(dtype, 1001, 6, 2, reduction, kBalanced)));
    cases.push_back(unaligned(in_place(dtype, 1001, 4, 4, reduction, kBalanced)));
  }
}
}  // namespace

Cases tree_sum_cases(DType dtype) {
  Cases cases;
  add_all(cases, dtype);
  if (dtype == DType::f64) add_all(cases, DType::i64);
  if (dtype == DType::f32) add_all(cases, DType::i32);
  return cases;
}

}  // namespace lockstep::tests
