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
constexpr int kMostLockers = 16;

std::int64_t mapped_bytes(std::int64_t bytes) { return round_up(bytes, kHugePage); }

// The pieces of some memory that are locked apart, by where they begin in it; in the end, its bytes. Copies are cut at
// the same addresses (upload_later, download_later).
std::vector<std::int64_t> pieces_of(const char* data, std::int64_t bytes) {
  const auto begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
  std::vector<std::int64_t> cuts = {0};
  for (std::int64_t at = (begin / kLockedPiece + 1) * kLockedPiece; at < begin + bytes; at += kLockedPiece)
    cuts.push_back(at - begin);
  cuts.push_back(bytes);
  return cuts;
}

// Calls body(first byte, bytes) for each piece, on several threads; false when one of the calls was.
template <class Body>
bool each_piece_at_once(const std::vector<std::int64_t>& cuts, Body&& body) {
  const auto pieces = std::ssize(cuts) - 1;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> good{true};
  int gpu = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  const auto take_pieces = [&] {
    cudaSetDevice(gpu);
    for (std::int64_t i; (i = next++) < pieces;) {
      const std::int64_t begin = cuts[static_cast<std::size_t>(i)];
      if (!body(begin, cuts[static_cast<std::size_t>(i) + 1] - begin)) good = false;
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
  std::vector<std::int64_t> cuts = pieces_of(data, bytes);
  cuts.pop_back();
  for (const std::int64_t at : cuts) cudaHostUnregister(data + at);
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
  const bool locked = each_piece_at_once(pieces_of(data, size), [&](std::int64_t first, std::int64_t count) {
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
