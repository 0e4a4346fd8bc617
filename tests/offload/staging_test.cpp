// Offloaded state is brought, worked on and taken back, each element once, whatever the windows are.
#include "offload/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "base/error.h"
#include "support/late_writes.h"
#include "support/program.h"
#include "support/tensor_box.h"
#include "tensor/meta/stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

struct StagedSizes {
  std::vector<std::int64_t> lengths;
  std::int64_t window_bytes;
  bool on_disk = false;
  bool through_rooms = false;  // as a GPU has it
};

class Windows : public ::testing::TestWithParam<StagedSizes> {
 protected:
  // Of each pass two tensors, of fp32 and of bf16, whose elements are small whole numbers.
  using Tensors = std::vector<Tensor>;
  std::vector<Tensors> plain_passes() {
    std::vector<Tensors> passes;
    const Recipe place = [](std::uint64_t seed, std::int64_t i) {
      return static_cast<double>((i + static_cast<std::int64_t>(seed)) % 40);
    };
    for (std::size_t p = 0; p < GetParam().lengths.size(); ++p)
      passes.push_back({box_.make(DType::f32, {GetParam().lengths[p]}, place, p),
                        box_.make(DType::bf16, {GetParam().lengths[p]}, place, 7 * p + 1)});
    return passes;
  }
  // The same, offloaded.
  std::vector<Staging::Pass> make_passes() {
    std::vector<Staging::Pass> passes;
    for (const Tensors& tensors : plain_passes()) passes.emplace_back(tensors.begin(), tensors.end());
    for (Staging::Pass& pass : passes)
      for (auto& [t, access] : pass) {
        if (!GetParam().on_disk) continue;
        offloaded_.push_back(disk_.allocate(t.bytes(), Tag::optimizer));
        const Tensor there = view(offloaded_.back(), t.dtype(), {t.elements()});
        upload(there, t.raw(), box_.stream());
        t = there;
      }
    return passes;
  }
  Staging::Options options() {
    return {.window_bytes = GetParam().window_bytes,
            .on_disk = GetParam().on_disk,
            .rooms = GetParam().through_rooms ? rooms_.get() : nullptr};
  }
  std::vector<std::byte> bytes_of(const ConstTensor& t) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    download(bytes.data(), t, box_.stream());
    return bytes;
  }

  TensorBox box_;
  TemporaryFolder folder_;
  Ledger ledger_, disk_ledger_, rooms_ledger_;
  disk::FileMemory disk_{disk_ledger_, folder_.path()};
  std::vector<Buffer> offloaded_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  std::unique_ptr<Memory> rooms_ = make_memory(Device::cpu, rooms_ledger_);
};

// a += b + place, b += 1: wrong if a window is brought late, early, from elsewhere or not taken back.
void add_round(const Staging::Window& w) {
  for (std::int64_t i = 0; i < w.count; ++i) {
    const double a = TensorBox::read(w.parts[0], i), b = TensorBox::read(w.parts[1], i);
    TensorBox::write(w.parts[0], i, a + b + static_cast<double>((w.begin + i) % 5));
    TensorBox::write(w.parts[1], i, b + 1);
  }
}

TEST_P(Windows, WorkOnEachElementOnceARound) {
  const std::vector<Staging::Pass> passes = make_passes();
  const std::vector<Tensors> plain = plain_passes();
  Staging staging(options(), passes, *memory_, box_.stream());
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t p = 0; p < passes.size(); ++p) {
      std::int64_t next = 0;
      staging.run(static_cast<int>(p), [&](const Staging::Window& w) {
        EXPECT_EQ(w.begin, next);
        next += w.count;
        add_round(w);
      });
      EXPECT_EQ(next, GetParam().lengths[p]);
      staging.wait_for(static_cast<int>(p));
      add_round({.begin = 0, .count = GetParam().lengths[p], .parts = plain[p], .stream = box_.stream()});
    }
  staging.settle();
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    bytes += 6 * GetParam().lengths[p];
    for (int t = 0; t < 2; ++t)
      EXPECT_EQ(bytes_of(passes[p][t].tensor), TensorBox::bytes(plain[p][t])) << "pass " << p << ", tensor " << t;
  }
  EXPECT_EQ(staging.traffic().from_device, kRounds * bytes);
  EXPECT_EQ(staging.traffic().to_device, kRounds * bytes) << "without windows of the next round";
}

// Somebody loads another state between two rounds.
TEST_P(Windows, AreBroughtAgainWhenWhatRestsWasChanged) {
  const std::vector<Staging::Pass> passes = make_passes();
  Staging staging(options(), passes, *memory_, box_.stream());
  const auto round = [&](const Staging::Work& work) {
    for (std::size_t p = 0; p < passes.size(); ++p) staging.run(static_cast<int>(p), work);
    staging.settle();
  };
  round(add_round);
  for (const Staging::Pass& pass : passes)
    for (const auto& [t, access] : pass)
      upload(t, std::vector<char>(static_cast<std::size_t>(t.bytes())).data(), box_.stream());
  staging.forget();
  round([](const Staging::Window& w) {
    for (std::int64_t i = 0; i < w.count; ++i) {
      ASSERT_EQ(TensorBox::read(w.parts[0], i), 0);
      ASSERT_EQ(TensorBox::read(w.parts[1], i), 0);
    }
  });
}

TEST_P(Windows, VisitOneTensorOutsideOfRounds) {
  const std::vector<Staging::Pass> passes = make_passes();
  const std::vector<Tensors> plain = plain_passes();
  Staging staging(options(), passes, *memory_, box_.stream());
  for (std::size_t p = 0; p < passes.size(); ++p) staging.run(static_cast<int>(p), add_round);
  for (std::size_t p = 0; p < passes.size(); ++p)
    add_round({.begin = 0, .count = GetParam().lengths[p], .parts = plain[p], .stream = box_.stream()});
  const Tensor& last = passes.back()[1].tensor;
  std::int64_t next = 0;
  staging.visit({{last, Staging::Access::read}}, [&](const Staging::Window& w) {
    EXPECT_EQ(w.begin, next);
    next += w.count;
    EXPECT_EQ(TensorBox::bytes(w.parts[0]), TensorBox::bytes(plain.back()[1].slice(0, w.begin, w.count)));
    std::memset(w.parts[0].raw(), 0, static_cast<std::size_t>(w.parts[0].bytes()));  // read alone: not taken back
  });
  EXPECT_EQ(next, GetParam().lengths.back());
  EXPECT_EQ(bytes_of(last), TensorBox::bytes(plain.back()[1]));
  staging.visit({{last, Staging::Access::write}}, [](const Staging::Window& w) {
    for (std::int64_t i = 0; i < w.count; ++i) TensorBox::write(w.parts[0], i, static_cast<double>((w.begin + i) % 3));
  });
  staging.visit({{last, Staging::Access::change}}, [](const Staging::Window& w) {
    for (std::int64_t i = 0; i < w.count; ++i) TensorBox::write(w.parts[0], i, TensorBox::read(w.parts[0], i) + 1);
  });
  const std::vector<double> now = to_doubles(last, box_.stream());
  for (std::int64_t i = 0; i < last.elements(); ++i) ASSERT_EQ(now[static_cast<std::size_t>(i)], i % 3 + 1) << i;
  // The next round brings what was written.
  for (std::size_t p = 0; p < passes.size(); ++p)
    staging.run(static_cast<int>(p), [&](const Staging::Window& w) {
      if (p + 1 < passes.size()) return;
      for (std::int64_t i = 0; i < w.count; ++i) ASSERT_EQ(TensorBox::read(w.parts[1], i), (w.begin + i) % 3 + 1);
    });
}

TEST_P(Windows, TakeTheBytesAndMoveTheBytesThatMetaSays) {
  Staging real(options(), make_passes(), *memory_, box_.stream());
  Ledger ledger, rooms_ledger;
  const auto nothing = make_memory(Device::meta, ledger), no_room = make_memory(Device::meta, rooms_ledger);
  meta::Stream stream;
  std::vector<Staging::Pass> passes;
  for (const std::int64_t n : GetParam().lengths)
    passes.push_back({Tensor(nullptr, DType::f32, Device::meta, {n}), Tensor(nullptr, DType::bf16, Device::meta, {n})});
  Staging::Options on_meta = options();
  if (on_meta.rooms) on_meta.rooms = no_room.get();
  Staging counted(on_meta, passes, *nothing, stream);
  for (int p = 0; p < static_cast<int>(passes.size()); ++p) {
    real.run(p, [](const Staging::Window&) {});
    counted.run(p, [](const Staging::Window&) {});
  }
  EXPECT_EQ(counted.traffic(), real.traffic());
  EXPECT_EQ(ledger.rows(), ledger_.rows());
  EXPECT_EQ(rooms_ledger.rows(), rooms_ledger_.rows());
  // No more than asked for, but for what each of the two tensors is rounded up to.
  const std::int64_t longest = *std::ranges::max_element(GetParam().lengths);
  const std::int64_t least = GetParam().on_disk ? disk::kBlock / 2 : 256,
                     unit = GetParam().on_disk ? disk::kBlock : kAlignment;
  const std::int64_t window = std::min(std::max(6 * least, GetParam().window_bytes), 6 * longest);
  EXPECT_LE(ledger.current(), Staging::kSlots * (window + 2 * unit) + unit);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Windows,
                         testing::Values(StagedSizes{{1000}, 1 << 20},  // fewer windows than slots: one,
                                         StagedSizes{{512}, 0},         // two,
                                         StagedSizes{{256, 700}, 0},    // four,
                                         StagedSizes{{1000, 256, 5}, 0}, StagedSizes{{3000, 7000, 1}, 6 * 512},
                                         StagedSizes{{100, 100, 100, 100, 100, 100}, 6 * 1024},
                                         StagedSizes{{1000}, 0, true}, StagedSizes{{70'000}, 0, true},
                                         StagedSizes{{40'000, 200'000, 1}, 0, true},
                                         StagedSizes{{300'000, 33'000}, 600'000, true},
                                         StagedSizes{{100, 100, 100, 100, 100}, 1 << 20, true},
                                         StagedSizes{{40'000, 200'000, 1}, 0, true, true},
                                         StagedSizes{{300'000, 33'000}, 600'000, true, true}));

TEST(WindowsOfPasses, AreNotReadBeforeTheirLastWriteIsDone) {
  TensorBox box;
  const TemporaryFolder folder;
  for (const std::int64_t windows : {1, 2, 3, 4, 5}) {
    Ledger ledger, there;
    const auto memory = make_memory(Device::cpu, ledger);
    disk::FileMemory file(there, folder.path(), std::make_unique<LateWrites>());
    const std::int64_t elements = windows * disk::kBlock / 2;
    const Buffer buffer = file.allocate(elements * 4, Tag::optimizer);
    Staging staging({.window_bytes = 0, .on_disk = true}, {{view(buffer, DType::f32, {elements})}}, *memory,
                    box.stream());
    for (int round = 0; round < 4; ++round)
      staging.run(0, [&](const Staging::Window& w) {
        for (std::int64_t i = 0; i < w.count; i += 1000) {
          ASSERT_EQ(TensorBox::read(w.parts[0], i), round) << windows << " windows";
          TensorBox::write(w.parts[0], i, round + 1);
        }
      });
    staging.settle();
  }
}

// What is read alone is not taken back, and what is written alone is not brought.
TEST(WindowsOfPasses, MoveWhatIsReadAndWhatIsWritten) {
  TensorBox box;
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  const Tensor read = box.make(
      DType::f32, {600}, [](std::uint64_t, std::int64_t i) { return double(i); }, 0);
  const Tensor written = box.make(DType::f32, {600});
  Staging staging({.window_bytes = 0}, {{{read, Staging::Access::read}, {written, Staging::Access::write}}}, *memory,
                  box.stream());
  for (int round = 1; round <= 3; ++round) {
    staging.run(0, [&](const Staging::Window& w) {
      for (std::int64_t i = 0; i < w.count; ++i) {
        ASSERT_EQ(TensorBox::read(w.parts[0], i), static_cast<double>(w.begin + i));
        TensorBox::write(w.parts[1], i, round * TensorBox::read(w.parts[0], i));
        TensorBox::write(w.parts[0], i, -1);
      }
    });
    staging.settle();
    for (std::int64_t i = 0; i < 600; ++i) ASSERT_EQ(TensorBox::read(written, i), static_cast<double>(round * i));
  }
  EXPECT_EQ(staging.traffic().from_device, 3 * 600 * 4);
  EXPECT_EQ(staging.traffic().to_device, 3 * 600 * 4);
}

// Somebody changes a tensor between rounds, and no window was brought before.
TEST(WindowsOfPasses, AreNotBroughtBeforeTheirRoundWhereRoundsAreApart) {
  TensorBox box;
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  const Tensor changed = box.make(DType::f32, {256 * 5});
  Staging staging({.window_bytes = 0, .rounds_apart = true}, {{{changed, Staging::Access::read}}, {changed}}, *memory,
                  box.stream());
  for (int round = 1; round <= 3; ++round) {
    for (std::int64_t i = 0; i < changed.elements(); ++i) TensorBox::write(changed, i, round * 10);
    for (const int pass : {0, 1})
      staging.run(pass, [&](const Staging::Window& w) {
        for (std::int64_t i = 0; i < w.count; ++i) ASSERT_EQ(TensorBox::read(w.parts[0], i), round * 10) << pass;
      });
  }
}

// A disk that fails while nobody waits for it: the next run, or settle(), says so.
TEST(WindowsOfPasses, NameADiskThatFailsBesideTheCompute) {
  struct Broken final : disk::RawIo {
    int depth() const override { return 64; }
    void start(const disk::RawRequest& r) override { tags.push_back(r.tag); }
    disk::RawResult next() override {
      const disk::RawResult result{tags.front(), -EIO};
      tags.pop_front();
      return result;
    }
    std::deque<decltype(disk::RawRequest::tag)> tags;
  };
  TensorBox box;
  const TemporaryFolder folder;
  Ledger ledger, there, rooms_ledger;
  const auto memory = make_memory(Device::cpu, ledger), rooms = make_memory(Device::cpu, rooms_ledger);
  disk::FileMemory file(there, folder.path(), std::make_unique<Broken>());
  const Buffer buffer = file.allocate(100'000 * 4, Tag::optimizer);
  Staging staging({.window_bytes = 0, .on_disk = true, .rooms = rooms.get()}, {{view(buffer, DType::f32, {100'000})}},
                  *memory, box.stream());
  const auto nothing = [](const Staging::Window&) {};
  staging.run(0, nothing);
  EXPECT_THROW(staging.run(0, nothing), EnvironmentError);
  EXPECT_THROW(staging.settle(), EnvironmentError);
}

TEST(WindowsOfPasses, ComeInOrder) {
  TensorBox box;
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  Staging staging({.window_bytes = 0}, {{box.make(DType::f32, {600})}, {box.make(DType::f32, {600})}}, *memory,
                  box.stream());
  const auto nothing = [](const Staging::Window&) {};
  staging.run(0, nothing);
  EXPECT_THROW(staging.run(0, nothing), ProgramError);
  staging.run(1, nothing);
  staging.run(0, nothing);
}

}  // namespace
}  // namespace lockstep::tests
