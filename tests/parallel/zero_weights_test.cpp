// The weights that compute: gathered before a phase reads them and released after it (ZeRO 3), or published by the
// ranks that update them (ZeRO 1 and 2, central data parallel).
#include "parallel/zero_weights.h"

#include <gtest/gtest.h>

#include "support/devices.h"
#include "support/plain_units.h"

namespace lockstep::tests {
namespace {

// A rank's part of all units; element i of a unit's flat weights is value(unit, i, version).
class Held {
 public:
  Held(Communicator& all, const LayoutSpec& layout, const PlainUnits& units, Memory& memory, Stream& stream)
      : units_(units), groups_(all, layout) {
    for (int u = 0; u < units.count(); ++u)
      shards_.try_emplace(u, units.layout(u),
                          ZeroShard::Options{.types = storage_types(Precision::fp32),
                                             .optimizer = {},
                                             .shard = groups_.shard(),
                                             .whole_weights = !layout.cuts_weights()},
                          memory, stream);
  }
  ZeroGroups& groups() { return groups_; }
  std::map<int, ZeroShard>& shards() { return shards_; }

  static float value(int unit, std::int64_t i, int version) {
    return static_cast<float>(10000 * version + 3000 * unit + i);
  }
  // As an update would, of the elements that are this rank's.
  void move(int unit, int version) {
    const Tensor own = shards_.at(unit).own_weight();
    const std::int64_t first = groups_.shard().begin(units_.layout(unit).owned());
    for (std::int64_t i = 0; i < own.elements(); ++i) own.data<float>()[i] = value(unit, first + i, version);
  }
  void expect_whole(const Tensor& flat, int unit, int version) const {
    ASSERT_EQ(flat.elements(), groups_.shard().padded(units_.layout(unit).owned()));
    for (std::int64_t i = 0; i < flat.elements(); ++i)
      ASSERT_EQ(flat.data<float>()[i], value(unit, i, version)) << "unit " << unit << ", element " << i;
  }

 private:
  const PlainUnits& units_;
  ZeroGroups groups_;
  std::map<int, ZeroShard> shards_;
};

const std::vector<PlainUnits::Sizes> kGatheredUnits = {{700, 3}, {900}, {100, 20}, {1500}, {256}};

TEST(ZeroWeights, AreWholeWhileAPhaseReadsThem) {
  const PlainUnits units(kGatheredUnits);
  struct Case {
    int ranks, shard, prefetch;
    std::vector<int> bundles;
  };
  for (const auto& [ranks, shard, prefetch, bundles] : {Case{3, 0, 1, {}},
                                                        {5, 0, 1, {}},
                                                        {6, 3, 1, {}},
                                                        {3, 0, 0, {}},
                                                        {3, 0, 3, {}},
                                                        {3, 0, 1, {0, 1, 1, 1, 4}},
                                                        {6, 3, 2, {0, 1, 2, 2, 4}}})
    for (const bool overlap : {false, true}) {
      StepShape shape = units.shape(2, true);
      shape.gathers = true;
      shape.prefetch = prefetch;
      shape.bundles = bundles;
      const std::vector<Action> step = serial_step(shape), evaluation = forward_pass(shape);
      each_rank(ranks, [&, ranks = ranks, shard = shard](Communicator& all) {
        CpuDevice cpu;
        Held held(all, {.dp = ranks, .zero = 3, .shard = shard}, units, cpu.memory(), cpu.stream());
        ZeroWeights weights(
            {.layouts = units.layouts(), .step = step, .evaluation = evaluation, .shape = shape, .overlap = overlap},
            held.shards(), held.groups(), cpu.memory(), cpu.stream());
        for (int version = 1; version <= 3; ++version) {
          for (int u = 0; u < units.count(); ++u) held.move(u, version);
          const bool training = version != 2;
          weights.begin(training);
          std::map<int, Tensor> whole_units;
          for (const Action& a : training ? step : evaluation) {
            if (a.kind == ActionKind::gather) whole_units[a.unit] = weights.gather(a.unit).weights;
            if (a.kind == ActionKind::release) {
              weights.release(a.unit);
              whole_units.erase(a.unit);
            }
            if (!is_phase(a.kind)) continue;
            for (const int u : units_read(a, shape)) {
              weights.ready(u);
              held.expect_whole(whole_units.at(u), u, version);
            }
          }
          EXPECT_TRUE(whole_units.empty());
        }
      });
    }
}

// The unit at hand and the next one, and no more.
TEST(ZeroWeights, TakeRoomForTwoUnits) {
  const PlainUnits units({{3072}, {3072}, {3072}, {3072}, {3072}});
  StepShape shape = units.shape(1, true);
  shape.gathers = true;
  const std::vector<Action> step = serial_step(shape), evaluation = forward_pass(shape);
  each_rank(3, [&](Communicator& all) {
    Ledger ledger;
    const auto memory = make_memory(Device::cpu, ledger);
    CpuDevice cpu;
    Held held(all, {.dp = 3, .zero = 3}, units, *memory, cpu.stream());
    ZeroWeights weights({.layouts = units.layouts(), .step = step, .evaluation = evaluation}, held.shards(),
                        held.groups(), *memory, cpu.stream());
    EXPECT_EQ(ledger.peak(Tag::gathered), 2 * 3072 * 4);
    EXPECT_EQ(ledger.peak(Tag::parameter), 5 * 3072 * 4 / 3);
  });
}

TEST(ZeroWeights, ReachAllRanksWhenTheirOwnersPublishThem) {
  const PlainUnits units(kGatheredUnits);
  const std::vector<Action> nothing;
  for (const int ranks : {3, 5})
    for (const bool overlap : {false, true})
      each_rank(ranks, [&](Communicator& all) {
        CpuDevice cpu;
        Held held(all, {.dp = ranks, .zero = 1}, units, cpu.memory(), cpu.stream());
        ZeroWeights weights({.layouts = units.layouts(), .step = nothing, .evaluation = nothing, .overlap = overlap},
                            held.shards(), held.groups(), cpu.memory(), cpu.stream());
        for (int u = units.count() - 1; u >= 0; --u) {
          held.move(u, 1);
          weights.publish(u);
        }
        for (int u = 0; u < units.count(); ++u) {
          weights.ready(u);
          held.expect_whole(held.shards().at(u).flat_weight(), u, 1);
        }
      });
}

TEST(ZeroWeights, ReachAllRanksFromTheRoot) {
  const PlainUnits units(kGatheredUnits);
  const std::vector<Action> nothing;
  each_rank(3, [&](Communicator& all) {
    CpuDevice cpu;
    Held held(all, {.dp = 3}, units, cpu.memory(), cpu.stream());
    ZeroWeights weights({.layouts = units.layouts(), .step = nothing, .evaluation = nothing, .root = 1}, held.shards(),
                        held.groups(), cpu.memory(), cpu.stream());
    for (int u = 0; u < units.count(); ++u) {
      held.move(u, all.rank() == 1 ? 2 : 7);
      weights.publish(u);
    }
    for (int u = 0; u < units.count(); ++u) {
      weights.ready(u);
      held.expect_whole(held.shards().at(u).flat_weight(), u, 2);
    }
  });
}

}  // namespace
}  // namespace lockstep::tests
