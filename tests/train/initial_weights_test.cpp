// What weights begin as: element by element from the definition, and, whatever the definition, of the mean, spread and
// shape that their place in the model asks for.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "support/host_run.h"
#include "support/reference_random.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kLayers = 8;

// Wide and deep enough that a factor of 1 / sqrt(2 · layers) = 1/4 is far beyond chance in every tensor.
std::vector<NamedSpec> larger_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  for (NamedSpec& named : all) {
    named.spec.width = 48;
    named.spec.ffn_width = 60;
    named.spec.vocabulary = 101;
    named.spec.layers = kLayers;
    named.spec.init_std = 0.03;
    if (named.spec.family == Family::gpt2) named.spec.head_width = 8;
  }
  return all;
}

// How a tensor of this Hugging Face name begins: its spread, or -1 for all ones and 0 for all zeros.
double spread_of(const std::string& name, double init_std) {
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (name.ends_with(".bias")) return 0;
  if (is("norm.weight") || is("layernorm.weight") || is(".ln_")) return -1;
  // The two projections of a block that join the residual.
  const bool joins = is("self_attn.o_proj") || is("mlp.down_proj") || is("attn.c_proj") || is("mlp.c_proj");
  return joins ? init_std / std::sqrt(2.0 * kLayers) : init_std;
}

class InitialWeights : public ::testing::TestWithParam<NamedSpec> {
 protected:
  static constexpr std::uint64_t kSeed = 21;

  InitialWeights() : run_({.spec = GetParam().spec, .B = 1, .T = 4, .precision = Precision::fp64, .seed = kSeed}) {
    run_.replica->init_weights();
  }
  HostRun run_;
};

TEST_P(InitialWeights, HaveTheSpreadOfTheirPlaceAndTheShapeOfABell) {
  double all = 0, squares = 0, fourth = 0, beyond = 0;  // of all normal numbers, in standard deviations
  for (const auto& t : run_.replica->tensors()) {
    const std::vector<double> values = to_doubles(t.master, *run_.stream);
    const double spread = spread_of(t.tensor.name, GetParam().spec.init_std), n = static_cast<double>(values.size());
    if (spread <= 0) {
      for (const double v : values) ASSERT_EQ(v, spread < 0 ? 1 : 0) << t.tensor.name;
      continue;
    }
    double mean = 0, square = 0;
    for (const double v : values) {
      const double z = v / spread;
      mean += z / n;
      square += z * z / n;
      all += 1;
      squares += z * z;
      fourth += z * z * z * z;
      beyond += std::abs(z) > 2;
    }
    ASSERT_GE(n, 500) << t.tensor.name << " has too few to say";
    EXPECT_NEAR(mean, 0, 5 / std::sqrt(n)) << t.tensor.name;
    EXPECT_NEAR(std::sqrt(square), 1, 5 / std::sqrt(2 * n)) << t.tensor.name << ": its spread is not " << spread;
  }
  EXPECT_NEAR(squares / all, 1, 5 * std::sqrt(2 / all));
  EXPECT_NEAR(fourth / all, 3, 5 * std::sqrt(96 / all));
  EXPECT_NEAR(beyond / all, 0.0455003, 5 * std::sqrt(0.0434 / all));
}

TEST_P(InitialWeights, AreTheNumbersOfTheirNames) {
  for (const auto& t : run_.replica->tensors()) {
    const double spread = spread_of(t.tensor.name, GetParam().spec.init_std);
    if (spread <= 0) continue;
    const std::vector<double> values = to_doubles(t.master, *run_.stream);
    ASSERT_EQ(std::ssize(values), t.tensor.elements());
    const std::uint64_t key = random_key(kSeed, "init/" + t.tensor.name);
    for (std::int64_t i = 0; i < std::ssize(values); ++i)
      ASSERT_NEAR(values[i], spread * reference::normal_of(key, i), 1e-15) << t.tensor.name << " element " << i;
  }
}

// Another seed has nothing in common with this one, nor have two tensors of one model.
TEST_P(InitialWeights, OfOtherSeedsAndTensorsAreIndependent) {
  HostRun other({.spec = GetParam().spec, .B = 1, .T = 4, .precision = Precision::fp64, .seed = kSeed + 1});
  other.replica->init_weights();
  std::vector<std::vector<double>> tensors;
  for (const HostRun* run : {&std::as_const(run_), &std::as_const(other)})
    for (const auto& t : run->replica->tensors()) {
      const double spread = spread_of(t.tensor.name, GetParam().spec.init_std);
      if (spread <= 0) continue;
      tensors.push_back(to_doubles(t.master, *run->stream));
      tensors.back().resize(500);
      for (double& v : tensors.back()) v /= spread;
    }
  for (std::size_t a = 0; a < tensors.size(); ++a)
    for (std::size_t b = a + 1; b < tensors.size(); ++b) {
      double product = 0;
      for (std::size_t i = 0; i < 500; ++i) product += tensors[a][i] * tensors[b][i] / 500;
      ASSERT_LT(std::abs(product), 6 / std::sqrt(500.0)) << a << " and " << b;
    }
}

INSTANTIATE_TEST_SUITE_P(Of, InitialWeights, ::testing::ValuesIn(larger_specs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
