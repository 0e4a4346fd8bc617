// Offloaded state is updated on the host, each element once, whatever the windows are, and the device has the weights.
#include "offload/host_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "support/tensor_box.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

struct HostUpdateSizes {
  std::vector<std::int64_t> lengths;
  std::int64_t window_bytes;
  bool weight_comes = false;
};

class UpdatesOnTheHost : public ::testing::TestWithParam<HostUpdateSizes> {
 protected:
  // A unit's gradient and weights on the device, and the state on the host.
  struct Unit {
    Tensor gradient, weight, state;
  };
  Unit make_unit(std::size_t p) {
    const Shape shape{GetParam().lengths[p]};
    const Recipe small = [](std::uint64_t seed, std::int64_t i) {
      return static_cast<double>((i + static_cast<std::int64_t>(seed)) % 7);
    };
    return {box_.make(DType::f32, shape, small, 3 * p), box_.make(DType::bf16, shape, small, p),
            box_.make(DType::f32, shape, small, 5 * p + 1)};
  }
  std::vector<HostUpdates::Pass> passes() const {
    std::vector<HostUpdates::Pass> all;
    for (const std::int64_t n : GetParam().lengths)
      all.push_back(
          {.elements = n, .gradient = DType::f32, .weight = DType::bf16, .weight_comes = GetParam().weight_comes});
    return all;
  }
  static constexpr std::int64_t kControls = 3;
  HostUpdates::Options options() const {
    return {.window_bytes = GetParam().window_bytes, .threads = 2, .controls = kControls};
  }
  // Small whole numbers throughout, so that bf16 holds them: state = (state + gradient + control + place) mod 50, and
  // the weight is the state, or the old weight and the state.
  static double updated(double state, double gradient, double control, std::int64_t place) {
    return static_cast<double>((static_cast<std::int64_t>(state + gradient + control) + place % 5) % 50);
  }
  double next_weight(double weight, double state) const {
    return GetParam().weight_comes ? static_cast<double>(static_cast<std::int64_t>(weight + state) % 90) : state;
  }
  HostUpdates::Work work_on(const Tensor& state) const {
    return [this, state](const HostUpdates::Window& w) {
      EXPECT_EQ(w.stream.device(), Device::cpu);
      for (std::int64_t i = 0; i < w.count; ++i) {
        const std::int64_t place = w.begin + i;
        const double now = updated(TensorBox::read(state, place), TensorBox::read(w.gradient, i),
                                   TensorBox::read(w.control, 1), place);
        TensorBox::write(state, place, now);
        TensorBox::write(w.weight, i, next_weight(TensorBox::read(w.weight, i), now));
      }
    };
  }

  TensorBox box_;
  Ledger host_ledger_, ledger_;
  std::unique_ptr<Memory> host_ = make_memory(Device::cpu, host_ledger_), memory_ = make_memory(Device::cpu, ledger_);
};

TEST_P(UpdatesOnTheHost, WorkOnEachElementOnceARound) {
  const std::size_t units = GetParam().lengths.size();
  HostUpdates updates(options(), passes(), *host_, *memory_, box_.stream());
  std::vector<Unit> there, plain;
  for (std::size_t p = 0; p < units; ++p) {
    there.push_back(make_unit(p));
    plain.push_back(make_unit(p));
  }
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    const double said = round + 2;
    updates.hold(box_.make(DType::f64, {kControls}, std::vector<double>{9, said, 9}));
    for (std::size_t p = 0; p < units; ++p) {
      updates.run(static_cast<int>(p), there[p].gradient, there[p].weight, work_on(there[p].state));
      updates.wait_for(static_cast<int>(p));
      for (std::int64_t i = 0; i < GetParam().lengths[p]; ++i) {
        const double now = updated(TensorBox::read(plain[p].state, i), TensorBox::read(plain[p].gradient, i), said, i);
        TensorBox::write(plain[p].state, i, now);
        TensorBox::write(plain[p].weight, i, next_weight(TensorBox::read(plain[p].weight, i), now));
      }
      // What the next backward writes is another gradient.
      for (const Tensor& gradient : {there[p].gradient, plain[p].gradient})
        for (std::int64_t i = 0; i < GetParam().lengths[p]; ++i)
          TensorBox::write(gradient, i, static_cast<double>((i + round) % 11));
    }
  }
  updates.settle();
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < units; ++p) {
    elements += GetParam().lengths[p];
    EXPECT_EQ(TensorBox::bytes(there[p].weight), TensorBox::bytes(plain[p].weight)) << "unit " << p;
    EXPECT_EQ(TensorBox::bytes(there[p].state), TensorBox::bytes(plain[p].state)) << "unit " << p;
  }
  EXPECT_EQ(updates.traffic().to_device, kRounds * 2 * elements);
  EXPECT_EQ(updates.traffic().from_device, kRounds * (GetParam().weight_comes ? 6 : 4) * elements);
}

TEST_P(UpdatesOnTheHost, TakeTheBytesAndMoveTheBytesThatMetaSays) {
  HostUpdates real(options(), passes(), *host_, *memory_, box_.stream());
  Ledger host_ledger, ledger;
  const auto nowhere = make_memory(Device::meta, host_ledger), nothing = make_memory(Device::meta, ledger);
  meta::Stream stream;
  HostUpdates counted(options(), passes(), *nowhere, *nothing, stream);
  std::int64_t windows = 0, counted_windows = 0;
  for (std::size_t p = 0; p < GetParam().lengths.size(); ++p) {
    const std::int64_t n = GetParam().lengths[p];
    const Unit unit = make_unit(p);
    real.run(static_cast<int>(p), unit.gradient, unit.weight, [&](const HostUpdates::Window&) { ++windows; });
    counted.run(static_cast<int>(p), Tensor(nullptr, DType::f32, Device::meta, {n}),
                Tensor(nullptr, DType::bf16, Device::meta, {n}), [&](const HostUpdates::Window& w) {
                  EXPECT_EQ(&w.stream, &stream);
                  ++counted_windows;
                });
  }
  real.settle();
  EXPECT_EQ(counted_windows, windows);
  EXPECT_EQ(counted.traffic(), real.traffic());
  EXPECT_EQ(ledger.rows(), ledger_.rows());
  EXPECT_EQ(host_ledger.rows(), host_ledger_.rows());
  EXPECT_EQ(ledger.current() > 0, !GetParam().weight_comes) << "of visits, where masters are offloaded";
  // No more than asked for, but for what each of the two tensors is rounded up to.
  const std::int64_t longest = *std::ranges::max_element(GetParam().lengths);
  const std::int64_t window = std::min(std::max<std::int64_t>(6 * 256, GetParam().window_bytes), 6 * longest);
  EXPECT_LE(host_ledger.current(), HostUpdates::kSlots * (window + 2 * kAlignment));
}

INSTANTIATE_TEST_SUITE_P(Sizes, UpdatesOnTheHost,
                         testing::Values(HostUpdateSizes{{1000}, 1 << 20}, HostUpdateSizes{{512}, 0},
                                         HostUpdateSizes{{256, 700}, 0}, HostUpdateSizes{{1000, 256, 5}, 0, true},
                                         HostUpdateSizes{{3000, 7000, 1}, 6 * 512},
                                         HostUpdateSizes{{100, 100, 100, 100, 100, 100}, 6 * 1024, true}));

class HostUpdateCalls : public ::testing::Test {
 protected:
  TensorBox box_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  HostUpdates updates_{{.window_bytes = 0, .threads = 1, .controls = 1},
                       {{.elements = 600, .gradient = DType::f32, .weight = DType::bf16, .weight_comes = false}},
                       *memory_,
                       *memory_,
                       box_.stream()};
};

// The next step writes its learning rate while updates of this one are still to come.
TEST_F(HostUpdateCalls, SeeTheScalarsThatWereHeld) {
  const Tensor control = box_.make(DType::f64, {1}, std::vector<double>{3});
  updates_.hold(control);
  TensorBox::write(control, 0, 4);
  int windows = 0;
  updates_.run(0, box_.make(DType::f32, {600}), box_.make(DType::bf16, {600}), [&](const HostUpdates::Window& w) {
    EXPECT_EQ(TensorBox::read(w.control, 0), 3);
    ++windows;
  });
  updates_.settle();
  EXPECT_EQ(windows, 3);
}

TEST_F(HostUpdateCalls, ThatFailAreHeardOfInTheNext) {
  const Tensor gradient = box_.make(DType::f32, {600}), weight = box_.make(DType::bf16, {600});
  updates_.run(0, gradient, weight, [](const HostUpdates::Window&) { throw std::runtime_error("of the work"); });
  EXPECT_THROW(updates_.settle(), std::runtime_error);
  EXPECT_NO_THROW(updates_.settle()) << "once";
  updates_.run(0, gradient, weight, [](const HostUpdates::Window&) { throw std::runtime_error("of the work"); });
  EXPECT_THROW(updates_.run(0, gradient, weight, [](const HostUpdates::Window&) {}), std::runtime_error);
}

TEST_F(HostUpdateCalls, AreOfTheSizesThatWereSaid) {
  const auto nothing = [](const HostUpdates::Window&) {};
  EXPECT_THROW(updates_.run(0, box_.make(DType::f32, {601}), box_.make(DType::bf16, {601}), nothing), ProgramError);
  EXPECT_THROW(updates_.run(0, box_.make(DType::bf16, {600}), box_.make(DType::bf16, {600}), nothing), ProgramError);
  EXPECT_THROW(updates_.hold(box_.make(DType::f64, {2})), ProgramError);
}

TEST_F(HostUpdateCalls, VisitMastersOnTheDeviceAWindowAtATime) {
  constexpr std::int64_t kLong = (4 << 20) / 4 + 100;  // more than a window
  const Tensor master = box_.make(DType::f32, {kLong}, constant(1));
  std::int64_t next = 0;
  updates_.visit(master, Staging::Access::read, [&](const Staging::Window& w) {
    EXPECT_EQ(w.begin, next);
    next += w.count;
    for (std::int64_t i = 0; i < w.count; ++i) TensorBox::write(w.parts[0], i, 7);  // read alone: not taken back
  });
  EXPECT_EQ(next, kLong);
  EXPECT_EQ(TensorBox::read(master, kLong - 1), 1);
  updates_.visit(master, Staging::Access::change, [](const Staging::Window& w) {
    for (std::int64_t i = 0; i < w.count; ++i)
      TensorBox::write(w.parts[0], i, TensorBox::read(w.parts[0], i) + static_cast<double>((w.begin + i) % 3));
  });
  for (std::int64_t i = 0; i < kLong; ++i) ASSERT_EQ(TensorBox::read(master, i), 1 + static_cast<double>(i % 3)) << i;
}

}  // namespace
}  // namespace lockstep::tests
