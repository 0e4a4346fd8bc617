#include "tensor/cpu/heap.h"

#include <sys/mman.h>

#include <cstdlib>

namespace lockstep::cpu {

namespace {
// Buffers beyond this ask for huge pages: a product walks megabytes of operands, and with 4 KiB pages it waits for the
// page tables. Only the whole huge pages inside a buffer can be served so, hence no byte more is resident than asked.
constexpr std::int64_t kHugePage = 2 << 20;
}  // namespace

void* Heap::take(std::int64_t bytes) {
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<std::size_t>(alignment), static_cast<std::size_t>(bytes)) != 0) return nullptr;
  if (bytes >= kHugePage) madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // advice: refusal is no error
  return data;
}

void Heap::give_back(void* data, std::int64_t) noexcept { std::free(data); }

}  // namespace lockstep::cpu
