#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/integers.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/pinned_memory.h"

namespace lockstep::cuda {

namespace {

constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kLockedAtOnce = std::int64_t{1} << 30;
constexpr int kMostLockers = 16;

std::int64_t mapped_bytes(std::int64_t bytes) { return round_up(bytes, kHugePage); }

// Calls body(first byte, bytes) for pieces of [0, bytes), on several threads; false when one of the calls was.
template <class Body>
bool each_piece_at_once(std::int64_t bytes, Body&& body) {
  const std::int64_t pieces = (bytes + kLockedAtOnce - 1) / kLockedAtOnce;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> good{true};
  int gpu = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  const auto take_pieces = [&] {
    cudaSetDevice(gpu);
    for (std::int64_t i; (i = next++) < pieces;) {
      const std::int64_t begin = i * kLockedAtOnce;
      if (!body(begin, std::min(kLockedAtOnce, bytes - begin))) good = false;
    }
  };
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const auto threads = std::min<std::int64_t>({pieces, static_cast<std::int64_t>(cores), kMostLockers});
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(take_pieces);
  take_pieces();
  others.clear();
  return good;
}

void unlock(char* data, std::int64_t bytes) noexcept {
  for (std::int64_t at = 0; at < bytes; at += kLockedAtOnce) cudaHostUnregister(data + at);
  cudaGetLastError();  // of pieces that were never locked
}

}  // namespace

// The pages are there, and huge, before they are locked: locking then only walks them.
void* PinnedMemory::take(std::int64_t bytes) {
  const std::int64_t size = mapped_bytes(bytes);
  // With room to begin at a huge page.
  void* mapped = mmap(nullptr, static_cast<std::size_t>(size + kHugePage), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  const auto aligned = static_cast<std::uintptr_t>(round_up(static_cast<std::int64_t>(begin), kHugePage));
  if (aligned > begin) munmap(mapped, aligned - begin);
  if (const std::uintptr_t end = begin + static_cast<std::uintptr_t>(size + kHugePage),
      used = aligned + static_cast<std::uintptr_t>(size);
      end > used)
    munmap(reinterpret_cast<void*>(used), end - used);
  char* const data = reinterpret_cast<char*>(aligned);
  madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);  // advice: refusal is no error
  const bool locked = each_piece_at_once(size, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += 4096) static_cast<volatile char*>(data)[first + at] = 0;
    return cudaHostRegister(data + first, static_cast<std::size_t>(count), cudaHostRegisterPortable) == cudaSuccess;
  });
  if (locked) return data;
  unlock(data, size);
  munmap(data, static_cast<std::size_t>(size));
  return nullptr;
}

void PinnedMemory::give_back(void* data, std::int64_t bytes) noexcept {
  const std::int64_t size = mapped_bytes(bytes);
  unlock(static_cast<char*>(data), size);
  munmap(data, static_cast<std::size_t>(size));
}

}  // namespace lockstep::cuda
