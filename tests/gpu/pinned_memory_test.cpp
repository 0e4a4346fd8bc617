// Page-locked memory of the host: zero at first, and copied like any other.
#include "tensor/cuda/pinned_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

TEST(PinnedMemory, IsZeroAndIsCopiedWherever) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  Ledger ledger, host_ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto stream = make_stream(*memory, 1, Device::cuda);
  const Buffer device = memory->allocate(32 << 20, Tag::workspace);
  cuda::PinnedMemory pinned(host_ledger);
  const Buffer host =
      pinned.allocate((std::int64_t{1} << 30) + 12'345'678, Tag::workspace);  // no whole number of pages
  char* const begin = static_cast<char*>(host.data());
  for (std::int64_t at = 0; at < host.bytes(); at += 1'000'003) ASSERT_EQ(begin[at], 0);
  const std::int64_t bytes = 3 << 20;
  std::vector<char> want(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<char>(i * 7 + i / 251);
  const Tensor flat = view(device, DType::i32, {bytes / 4});
  const Tensor rows = view(device, DType::i32, {3 << 10, 512}).slice(1, 0, 256);  // with room between them
  for (const Tensor& there : {flat, rows})
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{500'000'004}, host.bytes() - bytes - 2}) {
      std::memcpy(begin + at, want.data(), want.size());
      upload_later(there, begin + at, *stream);
      stream->synchronize();
      std::memset(begin + at, 0, want.size());
      download_later(begin + at, there, *stream);
      stream->synchronize();
      EXPECT_EQ(std::memcmp(begin + at, want.data(), want.size()), 0) << at;
    }
}

}  // namespace
}  // namespace lockstep::tests
