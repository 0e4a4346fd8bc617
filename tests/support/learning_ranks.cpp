#include "support/learning_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "comm/threads/run_ranks.h"
#include "spec/layout/updates.h"
#include "support/rank_device.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

Replica::Options learning_options(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision) {
  Replica::Options o{.spec = spec, .B = kLearningSamples, .T = 9, .layout = layout, .precision = precision, .seed = 5};
  o.optimizer.clip = 0.1;  // active
  return o;
}

Learned learn(const Replica::Options& o, int steps, const WrapRanks& wrap, Device device, bool servers_on_host) {
  Learned learned;
  learned.copies.resize(
      static_cast<std::size_t>(o.layout.dp_kind == DpKind::central ? o.layout.replicas() : state_copies(o.layout)));
  std::int64_t elements = 0;
  std::map<std::string, std::int64_t> begins;
  for (const LogicalTensor& t : logical_tensors(Model(o.spec, 1, o.T, DType::f32, {.lora = o.how.lora}))) {
    begins[t.name] = elements;
    learned.tensors.push_back({t.name, elements, t.elements()});
    elements += t.elements();
  }
  for (auto& copy : learned.copies) copy.resize(static_cast<std::size_t>(elements));
  learned.gradients.assign(static_cast<std::size_t>(steps), learned.copies);
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    if (wrap) group = wrap(std::move(group));
    RankDevice on(servers_on_host && o.layout.serves(group->rank()) ? Device::cpu : device, *group, servers_on_host);
    Ledger offloaded;
    const std::unique_ptr<Memory> offload = offload_memory(o.how.memory, offloaded);
    Replica replica(o, on.ranks(), on.memory(), on.stream(), offload.get());
    replica.init_weights();
    const bool sums = rank_updates(o.layout, group->rank());  // others have their own part's gradients
    const auto own = static_cast<std::size_t>(
        o.layout.dp_kind == DpKind::central ? group->rank() : state_copy(o.layout, group->rank()));
    const auto put = [&](::lockstep::Tensor Replica::Named::*which, std::span<double> whole) {
      for (const auto& t : replica.tensors())
        if (t.counted && !t.runs.empty())
          t.put(to_doubles(t.*which, on.stream()), whole.subspan(static_cast<std::size_t>(begins.at(t.tensor.name))));
    };
    for (unsigned step = 0; step < static_cast<unsigned>(steps); ++step) {
      const TokenBatch all = random_batch(o, step);
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
      };
      const Replica::Result result = replica.step(part(all.tokens), part(all.targets));
      if (sums) put(&Replica::Named::gradient, learned.gradients[step][own]);
      if (rank != 0) continue;
      learned.losses.push_back(result.loss);
      learned.norms.push_back(result.norm);
      if (result.compression_error) learned.compression_errors.push_back(*result.compression_error);
    }
    replica.settle();
    if (sums || o.layout.dp_kind == DpKind::central) put(&Replica::Named::master, learned.copies[own]);
  });
  if (o.layout.dp_kind == DpKind::central)
    for (auto& step : learned.gradients) step.resize(1);
  return learned;
}

namespace {

double norm_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

void expect_close(const Learned& many, const Learned& one, const LearnedTolerances& to, const std::string& what) {
  ASSERT_EQ(many.losses.size(), one.losses.size()) << what;
  for (std::size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(many.losses[step], one.losses[step], to.losses * one.losses[step]) << what;
    EXPECT_NEAR(many.norms[step], one.norms[step], to.norms * one.norms[step]) << what;
    const std::vector<double>&mine = many.gradients[step][0], &theirs = one.gradients[step][0];
    const double least = 1e-6 * norm_of(theirs);
    for (const Learned::Tensor& t : one.tensors) {
      const auto of = [&](const std::vector<double>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(t.begin), static_cast<std::size_t>(t.count));
      };
      const double tolerance = step == 0 ? to.gradients : to.later;
      EXPECT_LE(distance(of(mine), of(theirs)), tolerance * std::max(norm_of(of(theirs)), least))
          << what << ": the gradient of " << t.name << " at step " << step;
    }
    for (const auto& copy : many.gradients[step])
      EXPECT_TRUE(same_bits(copy, mine)) << what << ": gradients of ranks drifted apart";
  }
  EXPECT_LE(distance(many.weights(), one.weights()), to.weights * norm_of(one.weights())) << what;
  for (const auto& copy : many.copies) EXPECT_TRUE(same_bits(copy, many.weights())) << what << ": ranks drifted apart";
}

void expect_equal(const Learned& one, const Learned& other, const std::string& what) {
  EXPECT_TRUE(same_bits(one.losses, other.losses)) << what;
  EXPECT_TRUE(same_bits(one.norms, other.norms)) << what;
  for (std::size_t step = 0; step < other.gradients.size(); ++step)
    for (const auto& copy : one.gradients.at(step))
      EXPECT_TRUE(same_bits(copy, other.gradients[step].at(0))) << what << ": gradients of step " << step;
  for (const auto& copy : one.copies) EXPECT_TRUE(same_bits(copy, other.weights())) << what;
}

}  // namespace lockstep::tests
