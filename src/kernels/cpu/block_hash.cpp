#include "kernels/block_hash.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/checksum.h"
#include "base/integers.h"
#include "kernels/block_sum.h"
#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

void block_hash(const BlockHashArgs& a, lockstep::Stream& stream) {
  constexpr std::int64_t kBlocksAnItem = 16;
  const std::int64_t bytes = a.x.bytes(), blocks = ceil_div(bytes, kHashedBlock);
  const auto* const x = static_cast<const std::byte*>(a.x.raw());
  std::atomic<std::int64_t> low = 0, high = 0;
  Stream::of(stream).workers().each(ceil_div(blocks, kBlocksAnItem), [&](std::int64_t item, int) {
    std::int64_t my_low = 0, my_high = 0;
    for (std::int64_t block = item * kBlocksAnItem; block < std::min(blocks, (item + 1) * kBlocksAnItem); ++block) {
      const std::byte* from = x + block * kHashedBlock;
      std::array<std::byte, kHashedBlock> last;
      if (const std::int64_t left = bytes - block * kHashedBlock; left < kHashedBlock) {
        last.fill(std::byte{0});
        std::memcpy(last.data(), from, static_cast<std::size_t>(left));
        from = last.data();
      }
      const std::uint64_t sum = placed_sum(checksum({from, kHashedBlock}), static_cast<std::uint64_t>(block));
      my_low += static_cast<std::int64_t>(sum & 0xffffffffu);
      my_high += static_cast<std::int64_t>(sum >> 32);
    }
    low += my_low;  // integers: the order in which items come in does not matter
    high += my_high;
  });
  a.hash.data<std::int64_t>()[0] = low;
  a.hash.data<std::int64_t>()[1] = high;
}

}  // namespace lockstep::cpu
