// What calibrations and machine files know of the kernels of compression: the calls of a sum, and that they are timed.
#include "plan/coding_rates.h"

#include <gtest/gtest.h>

#include "kernels/block_codes.h"
#include "spec/model/presets.h"

namespace lockstep::tests {
namespace {

RunSpec any_run() {
  RunSpec run;
  run.model = *preset("llama-1m");
  run.run.threads = 1;
  return run;
}

// Of two ranks, n elements with residuals: what is coded is read, and its residual read and written; the sum's half is
// decoded from two codes, and coded once more; then all is decoded.
TEST(CodingRates, CountASumsKernels) {
  constexpr std::int64_t n = 4096;
  for (const auto& [name, form] :
       {std::pair{"bf16", BlockForm::bf16}, {"int8", BlockForm::int8}, {"onebit", BlockForm::onebit}}) {
    const meta::Work work = coding_work(any_run(), Compression::parse(name).value(), n);
    const std::int64_t code = 4 * coded_words(form, n), half = code / 2;
    EXPECT_EQ(work.calls, 4) << name;
    EXPECT_EQ(work.bytes_read, 2 * 4 * n + 2 * half + 4 * n + code) << name;
    EXPECT_EQ(work.bytes_written, code + 4 * n + 2 * n + half + 2 * n + 4 * n) << name;
  }
  const meta::Work top = coding_work(any_run(), Compression::parse("topk:0.25").value(), n);
  EXPECT_EQ(top.calls, 3);
  EXPECT_EQ(top.bytes_read, 2 * 4 * n + 2 * (3 * n));  // of an entry: its value, its index, what it is added to
  EXPECT_EQ(top.bytes_written, 2 * n + 4 * n + 2 * n);
}

TEST(CodingRates, AreSlowerThanNothingAndFasterThanAMillisecondPerByte) {
  for (const char* form : {"bf16", "int8", "onebit", "topk:0.01"}) {
    const double seconds = measure_coding(any_run(), Compression::parse(form).value(), 1, 2, 1 << 14);
    EXPECT_GT(seconds, 1e-12) << form;
    EXPECT_LT(seconds, 1e-3) << form;
  }
}

}  // namespace
}  // namespace lockstep::tests
