// Page-locked memory is locked in pieces, and copies go over their ends.
#include "tensor/cuda/pinned_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

TEST(PinnedMemory, IsCopiedAcrossTheEndsOfItsPieces) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  Ledger ledger, host_ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto stream = make_stream(*memory, 1, Device::cuda);
  const Buffer device = memory->allocate(32 << 20, Tag::workspace);
  cuda::PinnedMemory pinned(host_ledger);
  // Wherever it begins, at least one piece ends within it.
  const Buffer host = pinned.allocate(cuda::kLockedPiece + (256 << 20), Tag::workspace);
  char* const begin = static_cast<char*>(host.data());
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin));
  const std::int64_t cut = (address / cuda::kLockedPiece + 1) * cuda::kLockedPiece - address;
  const std::int64_t bytes = 3 << 20, before = std::min<std::int64_t>(cut, 1'000'004);
  char* const across = begin + cut - before;
  ASSERT_LE(cut - before + bytes, host.bytes());
  std::vector<char> want(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = static_cast<char>(i * 7 + i / 251);

  const Tensor flat = view(device, DType::i32, {bytes / 4});
  // Rows with room between them, one of which lies in two pieces.
  const Tensor rows = view(device, DType::i32, {3 << 10, 512}).slice(1, 0, 256);
  for (const Tensor& there : {flat, rows}) {
    std::memcpy(across, want.data(), want.size());
    upload_later(there, across, *stream);
    stream->synchronize();
    std::memset(across, 0, want.size());
    download_later(across, there, *stream);
    stream->synchronize();
    EXPECT_EQ(std::memcmp(across, want.data(), want.size()), 0);
  }
}

}  // namespace
}  // namespace lockstep::tests
