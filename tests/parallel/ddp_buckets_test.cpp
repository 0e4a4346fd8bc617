// DDP's buckets: runs of whole parameters, as large as they may be and no larger, summed over ranks when they are
// whole.
#include "parallel/ddp_buckets.h"

#include <gtest/gtest.h>

#include "support/devices.h"
#include "support/plain_units.h"

namespace lockstep::tests {
namespace {

using Sizes = std::vector<std::int64_t>;

// One of four ranks, whose messages are written down and go nowhere.
class Noted final : public Communicator {
 public:
  Noted() : Communicator(1, 4, "world", Device::cpu) {}
  Started start(const Message& message) override {
    ops.push_back(message.op);
    sent.push_back(message.in.elements());
    first.push_back(static_cast<const std::byte*>(message.in.raw()));
    return std::make_unique<NothingPending>();
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>&, const std::string&) override { return nullptr; }

  std::vector<CommOp> ops;
  Sizes sent;
  std::vector<const std::byte*> first;
};

// Units whose parameters have so many elements each, a multiple of 256.
class Units {
 public:
  explicit Units(const std::vector<Sizes>& units) {
    for (const Sizes& unit : units) {
      layouts_.push_back(std::make_unique<UnitLayout>("unit"));
      for (const std::int64_t elements : unit) {
        const std::string name = std::to_string(layouts_.size()) + "." + std::to_string(elements);
        layouts_.back()->add({.shape = {elements / 256, 256}, .pieces = {{{name, {elements / 256, 256}}}}});
      }
      actions.push_back({ActionKind::reduce, static_cast<int>(units.size() - layouts_.size())});  // the last one first
    }
  }
  std::vector<const UnitLayout*> layouts() const {
    std::vector<const UnitLayout*> all;
    for (const auto& layout : layouts_) all.push_back(layout.get());
    return all;
  }
  std::vector<Action> actions;

 private:
  std::vector<std::unique_ptr<UnitLayout>> layouts_;
};

// The messages of a step whose units become whole one after the other: how many there are after each, and their sizes.
struct Step {
  Sizes started, sizes;
};
Step step(const std::vector<Sizes>& units, const LayoutSpec& layout, std::optional<std::int64_t> bytes, DType dtype) {
  const Units made(units);
  Noted ranks;
  ZeroGroups groups(ranks, layout);
  CpuDevice cpu;
  const Gradients::Options options{.layouts = made.layouts(), .actions = made.actions, .dtype = dtype};
  const std::unique_ptr<Gradients> gradients =
      bytes ? std::make_unique<DdpBuckets>(options, DdpBuckets::Buckets{.bytes = *bytes}, groups, cpu.memory(),
                                           cpu.stream())
            : make_gradients(options, layout, groups, cpu.memory(), cpu.stream());
  Step result;
  for (const Action& action : made.actions) {
    gradients->whole(action.unit, -1);
    result.started.push_back(std::ssize(ranks.sent));
  }
  gradients->wait();
  for (std::size_t i = 1; i < ranks.sent.size(); ++i)  // one behind the other, nothing twice, nothing left out
    EXPECT_EQ(ranks.first[i] - ranks.first[i - 1], ranks.sent[i - 1] * size_of(dtype));
  for (const CommOp op : ranks.ops) EXPECT_EQ(op, CommOp::all_reduce);
  result.sizes = ranks.sent;
  return result;
}

const std::vector<Sizes> kBucketedUnits = {{1024, 256}, {512, 512, 256}, {2048, 256, 256}};

TEST(Buckets, HoldAtMostWhatTheyMay) {
  struct Case {
    std::int64_t bytes;
    Sizes sizes, started;
  };
  // Unit 2 becomes whole first, unit 0 last; 4 bytes an element.
  for (const Case& c : {Case{0, {2048, 256, 256, 512, 512, 256, 1024, 256}, {3, 6, 8}},
                        {4 * 256, {2048, 256, 256, 512, 512, 256, 1024, 256}, {3, 6, 8}},
                        {4 * 512, {2048, 512, 512, 512, 256, 1024, 256}, {2, 5, 7}},
                        {4 * 1024, {2048, 1024, 768, 1024, 256}, {1, 3, 5}},
                        {4 * 1023, {2048, 512, 512, 768, 1024, 256}, {2, 4, 6}},
                        {4 * 2560, {2560, 2560}, {1, 1, 2}},
                        {4 * 5119, {4864, 256}, {0, 0, 2}},
                        {4 * 5120, {5120}, {0, 0, 1}},
                        {1 << 30, {5120}, {0, 0, 1}}}) {
    const Step got = step(kBucketedUnits, {.dp = 4}, c.bytes, DType::f32);
    EXPECT_EQ(got.sizes, c.sizes) << c.bytes << " bytes";
    EXPECT_EQ(got.started, c.started) << c.bytes << " bytes";
    EXPECT_EQ(step(kBucketedUnits, {.dp = 4}, c.bytes / 2, DType::bf16).sizes, c.sizes)
        << "of half the bytes an element";
    EXPECT_EQ(step(kBucketedUnits, {.dp = 4}, c.bytes * 2, DType::f64).sizes, c.sizes) << "of twice the bytes";
  }
}

// layout.bucket counts MiB, of 2^18 elements in fp32.
TEST(Buckets, AreOfTheMebibytesOfTheLayout) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 18;
  const std::vector<Sizes> units = {{kMiB / 2, kMiB / 2, 256}, {kMiB, 256}, {3 * kMiB, kMiB / 4}};
  const auto sizes = [&](std::int64_t bucket) {
    return step(units, {.dp = 4, .bucket = bucket}, std::nullopt, DType::f32).sizes;
  };
  EXPECT_EQ(sizes(0), (Sizes{3 * kMiB, kMiB / 4, kMiB, 256, kMiB / 2, kMiB / 2, 256}));
  EXPECT_EQ(sizes(1), (Sizes{3 * kMiB, kMiB / 4, kMiB, 256 + kMiB / 2, kMiB / 2 + 256}));
  EXPECT_EQ(sizes(2), (Sizes{3 * kMiB, kMiB / 4 + kMiB + 256 + kMiB / 2, kMiB / 2 + 256}));
  EXPECT_EQ(sizes(25), (Sizes{5 * kMiB + kMiB / 4 + 512}));
}

// Whatever the bucket, and where ranks hold a shard each: with padding, a tied weight and two micro-batches.
TEST(Buckets, SumMicroBatchesAndRanks) {
  const PlainUnits units({{700, 3}, {100}, {513, 256}}, true);
  const std::vector<Action> actions = serial_step(units.shape(2, false));
  for (const int ranks : {1, 3, 5})
    for (const LayoutSpec& layout : {LayoutSpec{.dp = ranks}, LayoutSpec{.dp = ranks, .zero = 1}})
      for (const std::int64_t bytes : {0, 4 * 800, 1 << 20})
        for (const bool overlap : {false, true})
          each_rank(ranks, [&](Communicator& all) {
            CpuDevice cpu;
            ZeroGroups groups(all, layout);
            DdpBuckets gradients({.layouts = units.layouts(),
                                  .tie = units.tie(),
                                  .actions = actions,
                                  .dtype = DType::f32,
                                  .overlap = overlap},
                                 {.bytes = bytes}, groups, cpu.memory(), cpu.stream());
            for (int step = 0; step < 2; ++step) {
              units.run(gradients, actions, all.rank());
              expect_plain_sums(gradients, units, groups, 2);
            }
          });
}

// What a unit's gradient still lacks on its own rank is added before it is summed over ranks.
TEST(Buckets, AreCompletedOnceAndBeforeTheyAreSummed) {
  const PlainUnits units({{300}, {40, 41}});
  const std::vector<Action> actions = serial_step(units.shape(1, false));
  each_rank(2, [&](Communicator& all) {
    CpuDevice cpu;
    ZeroGroups groups(all, {.dp = 2});
    std::vector<int> completed;
    const auto complete = [&](int unit, const Tensor& flat) {
      completed.push_back(unit);
      flat.data<float>()[7] += 1000;
    };
    DdpBuckets gradients({.layouts = units.layouts(), .actions = actions, .dtype = DType::f32, .complete = complete},
                         {.bytes = 1 << 20}, groups, cpu.memory(), cpu.stream());
    units.run(gradients, actions, all.rank());
    EXPECT_EQ(completed, (std::vector<int>{1, 0}));
    for (const int unit : {0, 1}) {
      const double sum = PlainUnits::gradient(0, 0, unit, 0, 7) + PlainUnits::gradient(1, 0, unit, 0, 7);
      EXPECT_EQ(gradients.reduced(unit).data<float>()[7], static_cast<float>(sum + 2000)) << unit;
    }
  });
}

TEST(Buckets, WithARootSumToItAlone) {
  const PlainUnits units({{300}, {40, 41}});
  const std::vector<Action> actions = serial_step(units.shape(1, false));
  each_rank(3, [&](Communicator& all) {
    CpuDevice cpu;
    ZeroGroups groups(all, {.dp = 3});
    DdpBuckets gradients({.layouts = units.layouts(), .actions = actions, .dtype = DType::f32, .root = 1},
                         {.bytes = 1 << 20}, groups, cpu.memory(), cpu.stream());
    units.run(gradients, actions, all.rank());
    if (all.rank() == 1) return expect_plain_sums(gradients, units, groups, 1);
    EXPECT_EQ(gradients.reduced(0).data<float>()[7], PlainUnits::gradient(all.rank(), 0, 0, 0, 7));
  });
}

}  // namespace
}  // namespace lockstep::tests
