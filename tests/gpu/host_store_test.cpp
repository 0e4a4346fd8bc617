// A kernel's stores reach the host as a copy would, and do not wait for copies that were given before them.
#include "kernels/host_store.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensor/cuda/device.h"
#include "tensor/cuda/pinned_memory.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

class HostStoreOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

TEST_F(HostStoreOnTheGpu, BringsEveryValueAndNoOther) {
  Ledger ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto stream = make_stream(*memory, 1, Device::cuda);
  for (const std::int64_t n : {1, 255, 256, 257, 8'193, 300'001}) {
    std::vector<std::int32_t> want(static_cast<std::size_t>(n));
    std::iota(want.begin(), want.end(), 17);
    const Buffer buffer = memory->allocate((n + 1) * 4, Tag::data);
    const Tensor x = view(buffer, DType::i32, {n}, 1);  // not at a multiple of more than four bytes
    upload(x, want.data(), *stream);
    const HostBuffer host((n + 1) * 4, *stream);
    const auto here = host.as<std::int32_t>();
    std::ranges::fill(here, -1);
    host_store({.to = here.data(), .from = x}, *stream);
    const auto done = stream->make_event();
    stream->record(*done);
    done->wait();
    EXPECT_EQ(std::vector<std::int32_t>(here.begin(), here.end() - 1), want);
    EXPECT_EQ(here.back(), -1);
  }
}

TEST_F(HostStoreOnTheGpu, DoesNotWaitForCopiesBeforeIt) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  constexpr int kTimes = 8;  // some 0.15 s of copies
  Ledger ledger, host_ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto stream = make_stream(*memory, 1, Device::cuda), beside = make_stream(*memory, 1, Device::cuda);
  const Buffer large = memory->allocate(kBytes, Tag::workspace), small = memory->allocate(800, Tag::workspace);
  cuda::PinnedMemory pinned(host_ledger);
  const Buffer there = pinned.allocate(kBytes, Tag::workspace);
  const HostBuffer host(800, *stream);
  const auto copied = beside->make_event(), stored = stream->make_event();
  const auto store = [&] {
    host_store({.to = host.as<char>().data(), .from = view(small, DType::f64, {100})}, *stream);
    stream->record(*stored);
    stored->wait();
  };
  store();  // its code is loaded
  for (int i = 0; i < kTimes; ++i) download_later(there.data(), view(large, DType::f32, {kBytes / 4}), *beside);
  beside->record(*copied);
  store();
  EXPECT_FALSE(copied->done());
  copied->wait();
}

}  // namespace
}  // namespace lockstep::tests
