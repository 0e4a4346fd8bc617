// A NaN is never swallowed: it comes out of whatever depends on it, and of nothing else. (The optimizers stop at it:
// optimizers_test.cpp.)
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "support/case_names.h"
#include "support/case_run.h"
#include "support/cases/attention_cases.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

// For each case and each float input: one element becomes NaN; every output element that the reference makes NaN must
// be NaN.
class EveryKernelWithANan : public ::testing::TestWithParam<int> {
 protected:
  CpuDevice device_;
};

TEST_P(EveryKernelWithANan, PassesItOnExactlyWhereItBelongs) {
  const KernelCase& kernel = kernel_cases()[GetParam()];
  CaseRun run(kernel, device_.memory());
  for (int n = 0; n < static_cast<int>(kernel.operands.size()); ++n) {
    const Operand& operand = kernel.operands[n];
    if (operand.role == Role::out || !is_float(operand.dtype) || operand.shape.elements() == 0) continue;
    const std::vector<double> before = run.given()[n].value;
    for (const std::int64_t at : {std::int64_t{0}, operand.shape.elements() / 2, operand.shape.elements() - 1}) {
      std::vector<double> with_nan = before;
      with_nan[at] = NAN;
      run.set(n, with_nan);
      run.run(device_.stream());
      std::vector<HostTensor> want = run.given();
      kernel.reference(want);
      for (int out = 0; out < static_cast<int>(want.size()); ++out) {
        if (kernel.operands[out].role == Role::in) continue;
        const HostTensor got = run.read(out);
        for (std::int64_t i = 0; i < got.elements(); ++i)
          ASSERT_EQ(std::isnan(got[i]), std::isnan(want[out][i]))
              << "NaN in " << operand.name << "[" << at << "]: " << got.name << "[" << i << "] is " << got[i]
              << ", reference " << want[out][i];
      }
    }
    run.set(n, before);
  }
}

// Rows and columns of a few lanes are enough, in every type; attention is asked below, where hidden tiles matter.
INSTANTIATE_TEST_SUITE_P(Case, EveryKernelWithANan, ::testing::ValuesIn(cases_where([](const KernelCase& kernel) {
                           std::int64_t elements = 0;
                           for (const Operand& operand : kernel.operands) elements += operand.shape.elements();
                           return kernel.reference && elements < 3000 && kernel.op.rfind("attention", 0) != 0 &&
                                  kernel.op != "step_control" && kernel.op != "scale_loss" && kernel.op != "adamw" &&
                                  kernel.op != "sgd";
                         })),
                         case_name);

class AttentionWithANan : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t T = 150, D = 8;

  // o and lse after one element of an operand became NaN (2: q, 3: k, 4: v), by token.
  std::vector<bool> bad_rows(int operand, std::int64_t token, bool causal, int output) {
    const KernelCase kernel = make_attention_forward(GetParam(), {1, T, T, 2, 1, D, causal});
    CaseRun run(kernel, device_.memory());
    std::vector<double> value = run.given()[operand].value;
    value[token * (operand == 2 ? 2 : 1) * D + 3] = NAN;  // of head 0
    run.set(operand, value);
    run.run(device_.stream(2));
    const HostTensor got = run.read(output);
    std::vector<bool> bad(T);
    for (std::int64_t t = 0; t < T; ++t) {
      if (output == 1) bad[t] = std::isnan(got[t]);  // lse of head 0
      for (std::int64_t d = 0; output == 0 && d < D; ++d)
        if (std::isnan(got[t * 2 * D + d])) bad[t] = true;
    }
    return bad;
  }

  CpuDevice device_;
};

TEST_P(AttentionWithANan, AQueryPoisonsItsOwnRow) {
  for (const bool causal : {true, false})
    for (const std::int64_t token : {0, 77, 149})
      for (const int output : {0, 1}) {
        const std::vector<bool> bad = bad_rows(2, token, causal, output);
        for (std::int64_t t = 0; t < T; ++t) EXPECT_EQ(bad[t], t == token) << "query " << t << " of " << token;
      }
}

TEST_P(AttentionWithANan, AKeyPoisonsEveryQueryThatSeesIt) {
  for (const bool causal : {true, false})
    for (const std::int64_t token : {0, 63, 64, 77, 149})
      for (const int output : {0, 1}) {
        const std::vector<bool> bad = bad_rows(3, token, causal, output);
        for (std::int64_t t = 0; t < T; ++t)
          EXPECT_EQ(bad[t], !causal || t >= token) << "query " << t << ", key " << token << ", output " << output;
      }
}

// Of values and gradients only this much is claimed: a hidden one is multiplied by zero in the tile it shares, and may
// poison there.
TEST_P(AttentionWithANan, AValuePoisonsEveryQueryThatSeesIt) {
  for (const bool causal : {true, false})
    for (const std::int64_t token : {0, 77, 149}) {
      const std::vector<bool> bad = bad_rows(4, token, causal, 0);
      for (std::int64_t t = causal ? token : 0; t < T; ++t) EXPECT_TRUE(bad[t]) << "query " << t << ", value " << token;
    }
}

TEST_P(AttentionWithANan, AGradientPoisonsWhatItReaches) {
  const KernelCase kernel = make_attention_backward(GetParam(), {1, T, T, 2, 1, D, true});
  CaseRun run(kernel, device_.memory());
  for (const std::int64_t token : {0, 77, 149}) {
    std::vector<double> d_o = run.given()[0].value;
    const std::vector<double> before = d_o;
    d_o[token * 2 * D + 3] = NAN;  // of head 0
    run.set(0, d_o);
    run.run(device_.stream(2));
    const HostTensor dq = run.read(6), dk = run.read(7), dv = run.read(8);
    for (std::int64_t t = 0; t < T; ++t) {
      EXPECT_EQ(std::isnan(dq[t * 2 * D]), t == token) << "dq " << t;
      EXPECT_FALSE(std::isnan(dq[t * 2 * D + D])) << "dq of the other head, " << t;
      if (t > token) continue;
      EXPECT_TRUE(std::isnan(dk[t * D])) << "dk " << t;
      EXPECT_TRUE(std::isnan(dv[t * D + 3])) << "dv " << t;
    }
    run.set(0, before);
  }
}

INSTANTIATE_TEST_SUITE_P(In, AttentionWithANan, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
