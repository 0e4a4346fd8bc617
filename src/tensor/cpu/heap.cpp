#include "tensor/cpu/heap.h"

#include <cstdlib>

namespace lockstep::cpu {

void* Heap::take(std::int64_t bytes) { return std::aligned_alloc(kAlignment, static_cast<std::size_t>(bytes)); }

void Heap::give_back(void* data, std::int64_t) noexcept { std::free(data); }

}  // namespace lockstep::cpu
