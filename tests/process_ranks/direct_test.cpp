// Tensors in memory that the host's processes share are summed where they lie, to the same bits; where a rank's lie
// elsewhere, or a rank may not see the others', all ranks go through the slots.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "comm/delayed.h"
#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/watchdog.h"
#include "support/devices.h"
#include "support/every_op.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// Files of other processes that this one has mapped more of than the page it looks at.
int others_mapped() {
  std::set<std::string> own, mapped;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat about {};
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
    if (to.find("lockstep-tensors") == std::string::npos || stat(entry.path().c_str(), &about) != 0) continue;
    own.insert(std::to_string(about.st_ino));
    break;  // the first that was opened
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("lockstep-tensors") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, rights, offset, device, inode;
    words >> range >> rights >> offset >> device >> inode;
    if (!own.count(inode) && std::stoull(offset, nullptr, 16) != 0) mapped.insert(inode);
  }
  return static_cast<int>(mapped.size());
}

// Memory behind this process's file, in bytes.
std::int64_t own_bytes() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat about {};
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
    if (to.find("lockstep-tensors") != std::string::npos && stat(entry.path().c_str(), &about) == 0)
      return about.st_blocks * 512;
  }
  return 0;
}

// Whether the first ranks see each other's tensors.
bool see_each_other(int ranks) {
  const std::vector<int>& hosts = Processes::options().hosts;
  const auto end = hosts.begin() + (hosts.empty() ? 0 : ranks);
  return Processes::ranks().sees_tensors() && std::set<int>(hosts.begin(), end).size() <= 1;
}

class Direct : public ::testing::TestWithParam<int> {};

// Every operation, type, cut and order; on some ranks the tensors lie elsewhere in every third trial.
TEST_P(Direct, EveryOperationGivesTheBitsOfThreads) {
  const int ranks = GetParam();
  each_rank(ranks, [&](Communicator& comm) {
    CpuDevice cpu;
    Ledger ledger;
    const auto memory = comm.memory(ledger);
    EXPECT_EQ(memory != nullptr, ranks > 1 && see_each_other(ranks));
    auto trials =
        every_trial(ranks, {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native}, {0, 1003});
    std::erase_if(trials, [](const Trial& trial) {  // all processes compute what they should give: enough is enough
      return trial.dtype == DType::f64 || trial.dtype == DType::f16 || trial.dtype == DType::i64;
    });
    const auto want = references(trials, ranks);
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const bool elsewhere = !memory || (i % 3 == 2 && static_cast<std::size_t>(comm.rank()) == i % comm.size());
      const TrialBuffers got = run_trial(trials[i], comm, elsewhere ? cpu.memory() : *memory, cpu.stream());
      EXPECT_EQ(difference(trials[i], got, want[i][static_cast<std::size_t>(comm.rank())]), "");
    }
    EXPECT_EQ(ledger.current(), 0);
    comm.barrier()->wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(1, 2, 3, 5, 8));

// Many pieces, taken by whoever comes to them, several operations in flight.
TEST(Directly, LongRowsInFlightAreThoseOfThreads) {
  each_rank(3, [&](Communicator& comm) {
    Ledger ledger;
    const auto memory = comm.memory(ledger);
    if (!memory) return;
    constexpr std::int64_t kElements = 1500007;
    const auto fill = [&](const Tensor& t, int rank) {
      for (std::int64_t i = 0; i < t.elements(); ++i)
        t.data<float>()[i] = static_cast<float>(i % 1013 + 1) / static_cast<float>(rank + 3) * (i % 7 == 3 ? 1e6f : 1);
    };
    const auto run = [&](Communicator& ranks, const Tensor& x, const Tensor& y, const Tensor& part) {
      fill(x, ranks.rank());
      std::vector<Communicator::Started> all;
      all.push_back(ranks.all_reduce(x, {.algorithm = Algorithm::ring}));
      all.push_back(ranks.start({.op = CommOp::all_reduce, .out = y, .in = x}));
      const std::int64_t each = kElements / 3;
      const Communicator::Counts counts = {each, 0, kElements - each};
      const Tensor mine = part.slice(0, 0, counts[static_cast<std::size_t>(ranks.rank())]);
      all.push_back(ranks.reduce_scatter(mine, y, {Reduction::mean, Algorithm::tree}, counts));
      all.push_back(ranks.all_gather(x, mine, counts));
      all.push_back(ranks.broadcast(y, 2));
      for (auto& one : all) one->wait();
    };
    const auto view_of = [&](const Buffer& buffer) { return view(buffer, DType::f32, {kElements}); };
    std::vector<float> want_x, want_y;
    run_ranks(3, [&](std::unique_ptr<Communicator> threads) {
      std::vector<float> x(kElements), y(kElements), part(kElements);
      const auto tensor = [&](std::vector<float>& v) { return Tensor(v.data(), DType::f32, Device::cpu, {kElements}); };
      run(*threads, tensor(x), tensor(y), tensor(part));
      if (threads->rank() == comm.rank()) want_x = x, want_y = y;
    });
    const Buffer x = memory->allocate(kElements * 4, Tag::gradient), y = memory->allocate(kElements * 4, Tag::gradient),
                 part = memory->allocate(kElements * 4, Tag::gradient);
    EXPECT_EQ(ledger.current(), 3 * x.bytes());
    for (int again = 0; again < 3; ++again) {
      run(comm, view_of(x), view_of(y), view_of(part));
      EXPECT_EQ(std::memcmp(x.data(), want_x.data(), kElements * 4), 0);
      EXPECT_EQ(std::memcmp(y.data(), want_y.data(), kElements * 4), 0);
      comm.barrier()->wait();
    }
  });
}

TEST(Directly, BuffersThatGoLeaveNeitherMemoryNorMappings) {
  each_rank(3, [&](Communicator& comm) {
    constexpr std::int64_t kBytes = 4 << 20;
    const std::int64_t before = own_bytes();
    Ledger ledger;
    if (const auto memory = comm.memory(ledger)) {
      const Buffer buffer = memory->allocate(kBytes, Tag::gradient);
      const Tensor x = view(buffer, DType::f32, {kBytes / 4});
      std::fill_n(x.data<float>(), x.elements(), 1.0f);
      comm.all_reduce(x)->wait();
      EXPECT_EQ(x.data<float>()[kBytes / 4 - 1], 3);
      EXPECT_EQ(others_mapped(), 2) << "it did not go the direct way";
      EXPECT_GE(own_bytes() - before, kBytes);
      comm.barrier()->wait();
    }
    EXPECT_EQ(own_bytes(), before);
    comm.barrier()->wait();
    for (int i = 0; i < 200 && others_mapped() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(others_mapped(), 0);
    comm.barrier()->wait();
  });
}

TEST(Directly, OneRanksTensorElsewhereSendsAllThroughTheSlots) {
  each_rank(3, [&](Communicator& comm) {
    constexpr std::int64_t kElements = 300007;
    Ledger ledger;
    CpuDevice cpu;
    const auto memory = comm.memory(ledger);
    if (!memory) return;
    const Buffer buffer = (comm.rank() == 1 ? cpu.memory() : *memory).allocate(kElements * 4, Tag::gradient);
    const Tensor x = view(buffer, DType::f32, {kElements});
    std::fill_n(x.data<float>(), kElements, 2.0f);
    comm.all_reduce(x)->wait();
    EXPECT_EQ(x.data<float>()[kElements - 1], 6);
    EXPECT_EQ(others_mapped(), 0);
    comm.barrier()->wait();
  });
}

TEST(Directly, OneRankThatMayNotSeeTheOthersIsEnoughForAll) {
  const bool blind = !Processes::ranks().sees_tensors();
  each_rank(2, [&](Communicator& comm) {
    Ledger ledger;
    EXPECT_EQ(comm.memory(ledger) == nullptr, blind || !see_each_other(2));
  });
}

TEST(Directly, WrappersHandTheMemoryOn) {
  each_rank(2, [&](Communicator& comm) {
    Ledger ledger;
    CommLog log;
    SimulatedLink link(0, 1e12);
    const auto same = [](int rank) { return Place{0, rank}; };
    auto part = std::make_unique<Recorder>(comm.split(same, "part"), log);
    Delayed wrapped(std::make_unique<Watchdog>(std::move(part), log), link);
    EXPECT_EQ(wrapped.memory(ledger) == nullptr, comm.memory(ledger) == nullptr);
  });
}

// The ledger has what it has where no rank sees the others: meta's numbers stay right.
TEST(Directly, WhatTrainingSendsLiesWhereTheOthersSeeIt) {
  for (const int zero : {0, 1, 3})
    each_rank(3, [&](Communicator& comm) {
      Ledger shared;
      if (!comm.memory(shared)) return;
      const Replica::Options o =
          learning_options(tiny_specs()[0].spec, {.dp = 3, .micro = 2, .zero = zero}, Precision::fp32);
      CpuDevice cpu;
      cpu.stream();
      MetaDevice meta;
      const Buffer scratch = meta.memory().allocate(cpu::kScratchBytes, Tag::workspace);
      meta::Communicator of_three(comm.rank(), 3);
      const Replica counted(o, {of_three, of_three}, meta.memory(), meta.stream());
      {
        Replica replica(o, {comm, comm}, cpu.memory(), cpu.stream());
        EXPECT_EQ(cpu.memory().ledger().rows(), meta.memory().ledger().rows()) << zero;
        replica.init_weights();
        const TokenBatch batch = random_batch(o, 1);
        const auto part = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
          return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                          static_cast<std::size_t>(share.count * o.T));
        };
        EXPECT_TRUE(replica.step(part(batch.tokens), part(batch.targets)).updated);
        EXPECT_GE(others_mapped(), 2);
        comm.barrier()->wait();
      }
      EXPECT_EQ(cpu.memory().ledger().current(Tag::gradient), 0);
      comm.barrier()->wait();
    });
}

// MPI's own is in place on all ranks or on none: where some are, its algorithm would be another on those.
TEST(Native, InPlaceOnSomeRanksOnly) {
  each_rank(5, [&](Communicator& comm) {
    Row x = row_of(DType::f32, 100003, comm.rank()), y(DType::f32, 100003);
    Row& to = comm.rank() % 2 == 0 ? x : y;
    comm.start({.op = CommOp::all_reduce, .out = to, .in = x, .algorithm = Algorithm::native})->wait();
    for (const std::int64_t i : {0, 1, 50000, 100002})
      EXPECT_EQ(to[i], whole(0, i) + whole(1, i) + whole(2, i) + whole(3, i) + whole(4, i));
    comm.all_reduce(x, {.algorithm = Algorithm::native})->wait();
    comm.barrier()->wait();
  });
}

// Who goes away from an operation is not written to any more.
TEST(Directly, NobodyTouchesTheTensorsOfAnOperationThatWasDropped) {
  for (int again = 0; again < 10; ++again) {  // in most of them somebody is at work
    const auto group = Processes::world().split([](int rank) { return Place{rank < 3 ? 0 : -1, rank}; }, "dropped");
    if (!group) continue;
    Ledger ledger;
    const auto memory = group->memory(ledger);
    if (!memory) continue;
    constexpr std::int64_t kElements = 2000000;
    const Buffer buffer = memory->allocate(kElements * 4, Tag::gradient);
    const Tensor x = view(buffer, DType::f32, {kElements});
    std::fill_n(x.data<float>(), kElements, 1.0f);
    group->barrier()->wait();
    try {
      auto pending = group->all_reduce(x);
      if (group->rank() == 1) {
        pending.reset();
        std::fill_n(x.data<float>(), kElements, 5.0f);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (std::int64_t i = 0; i < kElements; ++i) ASSERT_EQ(x.data<float>()[i], 5.0f) << i;
      } else {
        pending->wait();
      }
    } catch (const CommError&) {  // the others have seen it go, or have been quicker
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
