// Tensors that are visited one after the other are what a plain list of them would be, whatever the order.
#include "offload/visits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "base/error.h"
#include "support/late_writes.h"
#include "support/program.h"
#include "support/tensor_box.h"
#include "tensor/meta/stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

struct VisitedSizes {
  std::vector<std::int64_t> lengths;
  std::vector<int> order;
  bool on_disk = false;
  bool through_rooms = false;  // as a GPU has it
};

class VisitedTensors : public ::testing::TestWithParam<VisitedSizes> {
 protected:
  // Every visit of a tensor but the first of a round brings it.
  Visits::Options visits_of(const std::vector<Tensor>& tensors, Memory& rooms) const {
    Visits::Options options{.tensors = tensors,
                            .order = {},
                            .on_disk = GetParam().on_disk,
                            .rooms = GetParam().through_rooms ? &rooms : nullptr};
    std::set<int> seen;
    for (const int t : GetParam().order) options.order.push_back({.tensor = t, .brings = !seen.insert(t).second});
    return options;
  }
};

// A visit adds a number of its own; the first of a round begins with it.
TEST_P(VisitedTensors, AreWhatAListOfThemWouldBe) {
  TensorBox box;
  const TemporaryFolder folder;
  Ledger ledger, there_ledger, rooms_ledger;
  const auto memory = make_memory(Device::cpu, ledger), rooms = make_memory(Device::cpu, rooms_ledger);
  std::unique_ptr<Memory> there;
  if (GetParam().on_disk)
    there = std::make_unique<disk::FileMemory>(there_ledger, folder.path(), std::make_unique<LateWrites>());
  else
    there = make_memory(Device::cpu, there_ledger);
  std::deque<Buffer> buffers;
  std::vector<Tensor> tensors;
  for (const std::int64_t n : GetParam().lengths) {
    buffers.push_back(there->allocate(n * 4, Tag::gradient));
    tensors.push_back(view(buffers.back(), DType::f32, {n}));
  }
  const Visits::Options options = visits_of(tensors, *rooms);
  Visits visits(options, *memory, box.stream());
  std::vector<double> sums(tensors.size());
  std::mt19937 random(3);
  double number = 0;
  std::int64_t out = 0, in = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<int> inside;
    for (const Visits::Visit& v : options.order) {
      // Some are left late: at the latest when the same one comes again, or the third after it.
      while (!inside.empty() &&
             (inside.size() >= 3 || std::ranges::find(inside, v.tensor) != inside.end() || random() % 2 == 0)) {
        visits.leave(inside.front());
        inside.erase(inside.begin());
      }
      const Tensor here = visits.enter(v.tensor);
      inside.push_back(v.tensor);
      double& sum = sums[static_cast<std::size_t>(v.tensor)];
      ++number;
      for (std::int64_t i = 0; i < here.elements(); ++i) {
        if (v.brings) {
          ASSERT_EQ(TensorBox::read(here, i), sum + static_cast<double>(i % 7)) << v.tensor;
        }
        TensorBox::write(here, i, (v.brings ? sum : 0) + number + static_cast<double>(i % 7));
      }
      sum = (v.brings ? sum : 0) + number;
      out += here.bytes();
      in += v.brings ? here.bytes() : 0;
    }
    for (const int t : inside) visits.leave(t);
    visits.settle();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::vector<double> now = to_doubles(tensors[t], box.stream());
      for (std::size_t i = 0; i < now.size() && sums[t] != 0; ++i)
        ASSERT_EQ(now[i], sums[t] + static_cast<double>(i % 7)) << "tensor " << t << " after round " << round;
    }
  }
  EXPECT_EQ(visits.traffic(), (Staging::Traffic{.to_device = in, .from_device = out}));

  // On meta: the same bytes, and the same traffic.
  Ledger counted, counted_rooms;
  const auto nothing = make_memory(Device::meta, counted), no_room = make_memory(Device::meta, counted_rooms);
  meta::Stream stream;
  std::vector<Tensor> shapes;
  for (const std::int64_t n : GetParam().lengths) shapes.emplace_back(nullptr, DType::f32, Device::meta, Shape{n});
  Visits on_meta(visits_of(shapes, *no_room), *nothing, stream);
  for (int round = 0; round < 3; ++round)
    for (const int t : GetParam().order) {
      on_meta.enter(t);
      on_meta.leave(t);
    }
  EXPECT_EQ(on_meta.traffic(), visits.traffic());
  EXPECT_EQ(counted.rows(), ledger.rows());
  EXPECT_EQ(counted_rooms.rows(), rooms_ledger.rows());
}

INSTANTIATE_TEST_SUITE_P(
    Orders, VisitedTensors,
    testing::Values(VisitedSizes{{1000}, {0}}, VisitedSizes{{1000}, {0, 0, 0}}, VisitedSizes{{500, 900}, {0, 1, 0, 1}},
                    VisitedSizes{{500, 9000, 700, 700, 3}, {4, 3, 2, 1, 0, 4, 3, 2, 1, 0, 4, 3, 2, 1, 0, 1}},
                    VisitedSizes{{40'000}, {0, 0, 0}, true}, VisitedSizes{{40'000, 100}, {0, 1, 0, 1, 1, 0}, true},
                    VisitedSizes{
                        {500, 90'000, 700, 20'000, 3}, {4, 3, 2, 1, 0, 4, 3, 2, 1, 0, 4, 3, 2, 1, 0, 1}, true}));

TEST(VisitsOfTensors, ComeInTheirOrderAndLeaveRoom) {
  TensorBox box;
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  std::vector<Tensor> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back(box.make(DType::f32, {256}));
  Visits visits({.tensors = tensors, .order = {{0}, {1}, {2}, {3}, {4}}}, *memory, box.stream());
  EXPECT_EQ(ledger.current(), 4 * 256 * 4) << "of the five, four at a time";
  EXPECT_THROW(visits.leave(0), ProgramError);
  visits.enter(0);
  EXPECT_THROW(visits.enter(2), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
