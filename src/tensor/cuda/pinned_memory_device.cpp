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
constexpr std::int64_t kTouchedAtOnce = 32 * kHugePage;
constexpr int kMostThreads = 16;

std::int64_t mapped_bytes(std::int64_t bytes) { return round_up(bytes, kHugePage); }

// Makes the pages, which the system clears, on several threads.
void touch(char* data, std::int64_t bytes) {
  const std::int64_t parts = ceil_div(bytes, kTouchedAtOnce);
  std::atomic<std::int64_t> next{0};
  const auto touch_parts = [&] {
    for (std::int64_t i; (i = next++) < parts;)
      for (std::int64_t at = i * kTouchedAtOnce; at < std::min(bytes, (i + 1) * kTouchedAtOnce); at += 4096)
        static_cast<volatile char*>(data)[at] = 0;
  };
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < std::min<std::int64_t>({parts, cores, kMostThreads}); ++i)
    others.emplace_back(touch_parts);
  touch_parts();
}

}  // namespace

// The pages are there, and huge, before they are locked: locking then only walks them, 40 GiB a second, which several
// threads would not do faster.
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
  touch(data, size);
  if (cudaHostRegister(data, static_cast<std::size_t>(size), cudaHostRegisterPortable) == cudaSuccess) return data;
  cudaGetLastError();
  munmap(data, static_cast<std::size_t>(size));
  return nullptr;
}

void PinnedMemory::give_back(void* data, std::int64_t bytes) noexcept {
  const std::int64_t size = mapped_bytes(bytes);
  given_back(cudaHostUnregister(data), "cudaHostUnregister");
  munmap(data, static_cast<std::size_t>(size));
}

}  // namespace lockstep::cuda
