#include "support/one_by_one.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::tests {

Found run_batch(const Replica::Options& options, const TokenBatch& batch) {
  HostRun run(options);
  run.replica->init_weights();
  Found found;
  found.logits.resize(static_cast<std::size_t>(options.B * options.T * options.spec.vocabulary));
  run.replica->evaluate(batch.tokens, batch.targets, found.logits);
  found.loss = run.replica->compute_gradients(batch.tokens, batch.targets);
  for (const auto& t : run.replica->tensors())
    if (!t.runs.empty()) found.gradients.emplace_back(t.tensor.name, to_doubles(t.gradient, *run.stream));
  return found;
}

std::vector<PlacedDocument> documents_of(const TokenBatch& batch, std::int64_t T) {
  std::vector<PlacedDocument> all;
  for (std::size_t at = 0; at < batch.tokens.size(); ++at) {
    if (batch.tokens[at] == kPadding) continue;
    if (at % static_cast<std::size_t>(T) == 0 || batch.tokens[at] < 0) all.push_back({at, 0});
    ++all.back().count;
  }
  return all;
}

Found run_one_by_one(const Replica::Options& options, const TokenBatch& batch) {
  Found sum;
  sum.logits.resize(static_cast<std::size_t>(options.B * options.T * options.spec.vocabulary));
  const auto valid = [](std::span<const std::int32_t> targets) {
    return static_cast<double>(std::ssize(targets) - std::ranges::count(targets, kNoTarget));
  };
  for (const PlacedDocument& d : documents_of(batch, options.T)) {
    Replica::Options alone = options;
    alone.B = 1;
    alone.T = static_cast<std::int64_t>(d.count);
    alone.how.documents = nullptr;
    alone.how.varlen = false;
    alone.layout = {};
    const auto part = [&](const std::vector<std::int32_t>& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(d.begin);
      return std::vector<std::int32_t>(first, first + static_cast<std::ptrdiff_t>(d.count));
    };
    TokenBatch own{part(batch.tokens), part(batch.targets)};
    own.tokens[0] &= ~kBeginsDocument;
    const Found one = run_batch(alone, own);
    const double share = valid(own.targets) / valid(batch.targets);
    sum.loss += one.loss * share;
    std::ranges::copy(one.logits, sum.logits.begin() + static_cast<std::ptrdiff_t>(d.begin) * options.spec.vocabulary);
    if (sum.gradients.empty()) {
      sum.gradients = one.gradients;
      for (auto& [name, values] : sum.gradients) std::ranges::fill(values, 0);
    }
    for (std::size_t i = 0; i < sum.gradients.size(); ++i)
      for (std::size_t k = 0; k < sum.gradients[i].second.size(); ++k)
        sum.gradients[i].second[k] += share * one.gradients[i].second[k];
  }
  return sum;
}

double norm(std::span<const double> values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares);
}

double relative(std::span<const double> a, std::span<const double> b, double least) {
  std::vector<double> off(a.begin(), a.end());
  for (std::size_t i = 0; i < off.size(); ++i) off[i] -= b[i];
  return norm(off) / std::max(norm(b), least);
}

void expect_same(const Found& packed, const Found& alone, double tolerance, const std::string& what) {
  EXPECT_NEAR(packed.loss, alone.loss, tolerance * alone.loss) << what;
  EXPECT_LT(relative(packed.logits, alone.logits), tolerance) << what << ", logits";
  ASSERT_EQ(packed.gradients.size(), alone.gradients.size());
  double all = 0;
  for (const auto& [name, values] : alone.gradients) all = std::hypot(all, norm(values));
  for (std::size_t i = 0; i < alone.gradients.size(); ++i)
    EXPECT_LT(relative(packed.gradients[i].second, alone.gradients[i].second, 1e-6 * all), tolerance)
        << what << ", " << alone.gradients[i].first;
}

}  // namespace lockstep::tests
