#include "kernels/block_hash.h"

#include <cstring>

#include "base/checksum.h"
#include "kernels/block_sum.h"
#include "support/cases/families.h"

namespace lockstep::tests {

namespace {

KernelCase hash(DType dtype, std::int64_t n, std::int64_t gap = 0) {
  KernelCase made{.op = "block_hash", .shape = label({n}) + (gap > 0 ? "_unaligned" : ""), .dtype = dtype};
  made.operands = {{"hash", {kBlockHashWords}, DType::i64, Role::out}, {"x", {n}, dtype, Role::in, normal(), {gap}}};
  made.run = [](std::span<const Tensor> t, Stream& stream) { block_hash({.hash = t[0], .x = t[1]}, stream); };
  made.reference = [](std::span<HostTensor> t) {
    const std::int64_t each = size_of(t[1].dtype), elements = t[1].elements();
    t[0].value = {0, 0};
    for (std::int64_t block = 0; block * kHashedBlock < elements * each; ++block) {
      std::vector<std::byte> bytes(kHashedBlock);
      for (std::int64_t i = 0; i < kHashedBlock / each; ++i)
        if (const std::int64_t from = block * kHashedBlock / each + i; from < elements)
          store_element(bytes.data() + i * each, t[1].dtype, t[1][from]);
      const std::uint64_t sum = placed_sum(checksum(bytes), static_cast<std::uint64_t>(block));
      t[0].value[0] += static_cast<double>(sum & 0xffffffffu);
      t[0].value[1] += static_cast<double>(sum >> 32);
    }
  };
  return made;
}

}  // namespace

Cases block_hash_cases(DType dtype) {
  Cases cases;
  for (const std::int64_t n : {1, 3, 511, 1024, 2048, 2049, 70001}) cases.push_back(hash(dtype, n));
  cases.push_back(hash(dtype, 5001, 6));
  return cases;
}

}  // namespace lockstep::tests
