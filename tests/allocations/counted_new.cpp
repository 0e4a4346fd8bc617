#include "allocations/counted_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> calls{0}, bytes{0}, largest{0}, deletes{0};

[[maybe_unused]] void count(std::size_t size) {
  if (!counting.load(std::memory_order_relaxed)) return;
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  std::int64_t most = largest.load(std::memory_order_relaxed);
  while (static_cast<std::int64_t>(size) > most &&
         !largest.compare_exchange_weak(most, static_cast<std::int64_t>(size))) {
  }
}

[[maybe_unused]] void* take(std::size_t size, std::size_t alignment) {
  count(size);
  void* const at = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
                       ? std::malloc(size > 0 ? size : 1)
                       : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!at) throw std::bad_alloc();
  return at;
}

[[maybe_unused]] void give(void* at) noexcept {
  if (at && counting.load(std::memory_order_relaxed)) deletes.fetch_add(1, std::memory_order_relaxed);
  std::free(at);
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* operator new(std::size_t size) { return take(size, 0); }
void* operator new[](std::size_t size) { return take(size, 0); }
void* operator new(std::size_t size, std::align_val_t to) { return take(size, static_cast<std::size_t>(to)); }
void* operator new[](std::size_t size, std::align_val_t to) { return take(size, static_cast<std::size_t>(to)); }
void operator delete(void* at) noexcept { give(at); }
void operator delete[](void* at) noexcept { give(at); }
void operator delete(void* at, std::size_t) noexcept { give(at); }
void operator delete[](void* at, std::size_t) noexcept { give(at); }
void operator delete(void* at, std::align_val_t) noexcept { give(at); }
void operator delete[](void* at, std::align_val_t) noexcept { give(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { give(at); }
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept { give(at); }

#endif

namespace lockstep::tests {

CountNew::CountNew() {
  calls = bytes = largest = deletes = 0;
  counting = true;
}

CountNew::~CountNew() { counting = false; }

NewCalls CountNew::so_far() const { return {calls, bytes, largest, calls - deletes}; }

}  // namespace lockstep::tests
