#include "support/learning_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

Replica::Options learning_options(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision) {
  Replica::Options o{.spec = spec, .B = kLearningSamples, .T = 9, .layout = layout, .precision = precision, .seed = 5};
  o.optimizer.clip = 0.1;  // active
  return o;
}

Learned learn(const Replica::Options& o, int steps, const WrapRanks& wrap) {
  const auto cut = static_cast<std::size_t>(o.layout.shards());
  Learned learned;
  learned.copies.resize(static_cast<std::size_t>(o.layout.replicas()) / cut);
  std::int64_t elements = 0;
  std::map<std::string, std::int64_t> begins;
  for (const LogicalTensor& t : logical_tensors(Model(o.spec, 1, o.T, DType::f32))) {
    begins[t.name] = elements;
    elements += t.elements();
  }
  for (auto& copy : learned.copies) copy.resize(static_cast<std::size_t>(elements));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    if (wrap) group = wrap(std::move(group));
    CpuDevice cpu;
    Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    for (unsigned step = 0; step < static_cast<unsigned>(steps); ++step) {
      const TokenBatch all = random_batch(o, step);
      const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
      };
      const Replica::Result result = replica.step(part(all.tokens), part(all.targets));
      if (rank != 0) continue;
      learned.losses.push_back(result.loss);
      learned.norms.push_back(result.norm);
    }
    replica.settle();
    const std::span<double> copy =
        learned.copies[static_cast<std::size_t>(o.layout.replica(static_cast<int>(rank))) / cut];
    for (const auto& t : replica.tensors())
      if (t.counted && !t.runs.empty())
        t.put(to_doubles(t.master, cpu.stream()), copy.subspan(static_cast<std::size_t>(begins.at(t.tensor.name))));
  });
  return learned;
}

void expect_close(const Learned& many, const Learned& one, const LearnedTolerances& to, const std::string& what) {
  for (std::size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(many.losses[step], one.losses[step], to.losses * one.losses[step]) << what;
    EXPECT_NEAR(many.norms[step], one.norms[step], to.norms * one.norms[step]) << what;
  }
  double error = 0, size = 0;
  for (std::size_t i = 0; i < one.weights().size(); ++i) {
    error += std::pow(many.weights()[i] - one.weights()[i], 2);
    size += std::pow(one.weights()[i], 2);
  }
  EXPECT_LE(std::sqrt(error), to.weights * std::sqrt(size)) << what;
  for (const auto& copy : many.copies) EXPECT_TRUE(copy == many.copies[0]) << what << ": ranks drifted apart";
}

void expect_equal(const Learned& one, const Learned& other, const std::string& what) {
  const auto bits = [](const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
  };
  EXPECT_TRUE(bits(one.losses, other.losses)) << what;
  EXPECT_TRUE(bits(one.norms, other.norms)) << what;
  for (const auto& copy : one.copies) EXPECT_TRUE(bits(copy, other.weights())) << what;
}

}  // namespace lockstep::tests
