// pack, unpack and keep, against plain loops: in every type, on any number of threads, at sizes beside those of words
// and of the ranges that threads take.
#include "kernels/mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "support/host_run.h"

namespace lockstep::tests {
namespace {

TEST(Mask, PacksUnpacksAndKeepsWhatItsBitsSay) {
  std::mt19937_64 random(2);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : {1, 63, 64, 65, 700, 16384, 16385, 40001})
      for (const unsigned one_of : {1U, 2U, 9U})  // of 1, all bits are set
        for (const int threads : {1, 3}) {
          SCOPED_TRACE(fmt::format("{} {} 1/{} {}", name_of(dtype), n, one_of, threads));
          Ledger ledger;
          const auto memory = make_memory(Device::cpu, ledger);
          cpu::Stream stream(*memory, threads);
          std::vector<std::int64_t> words(static_cast<std::size_t>(mask_words(n)));
          std::vector<bool> bits(static_cast<std::size_t>(n));
          std::int64_t kept = 0;
          for (std::int64_t i = 0; i < 64 * std::ssize(words); ++i) {
            // Bits past the end mean nothing, whatever they are.
            if (i < n && random() % one_of != 0) continue;
            words[static_cast<std::size_t>(i / 64)] |= std::int64_t{1} << (i % 64);
            if (i < n) bits[static_cast<std::size_t>(i)] = true;
            kept += i < n;
          }
          std::vector<double> dense(static_cast<std::size_t>(n)), packed;
          for (std::size_t i = 0; i < dense.size(); ++i) {
            dense[i] = static_cast<double>(i % 251) - 100;  // whole, in any type
            if (bits[i]) packed.push_back(dense[i]);
          }
          const auto room = [&](std::int64_t elements) { return memory->allocate(elements * 8 + 8, Tag::data); };
          const Buffer a = room(n), b = room(n), c = room(n);
          const Tensor x(a.data(), dtype, Device::cpu, {n}), y(b.data(), dtype, Device::cpu, {kept});
          const Tensor z(c.data(), dtype, Device::cpu, {n});
          const Tensor mask(words.data(), DType::i64, Device::cpu, {std::ssize(words)});
          upload_floats(x, dense.data(), DType::f64, stream);
          lockstep::pack({.packed = y, .dense = x, .mask = mask}, stream);
          EXPECT_EQ(to_doubles(y, stream), packed);
          lockstep::unpack({.dense = z, .packed = y, .mask = mask, .rest = -3}, stream);
          lockstep::keep({.dense = x, .mask = mask, .rest = -3}, stream);
          for (std::size_t i = 0; i < dense.size(); ++i)
            if (!bits[i]) dense[i] = -3;
          EXPECT_EQ(to_doubles(z, stream), dense);
          EXPECT_EQ(to_doubles(x, stream), dense);
        }
}

TEST(Mask, RefusesAsManyPackedElementsAsItDoesNotKeep) {
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  cpu::Stream stream(*memory, 1);
  std::int64_t word = 5;
  double values[4] = {};
  const Tensor dense(values, DType::f64, Device::cpu, {3}), packed(values + 3, DType::f64, Device::cpu, {1}),
      mask(&word, DType::i64, Device::cpu, {1});
  try {
    lockstep::pack({.packed = packed, .dense = dense, .mask = mask}, stream);
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("pack: the mask keeps 2 of 3 elements, and 1 are packed"));
  }
}

}  // namespace
}  // namespace lockstep::tests
