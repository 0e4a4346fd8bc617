#include "kernels/mask.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

class MaskBits {
 public:
  MaskBits(const ConstTensor& words, std::int64_t elements) : words_(words.data<std::int64_t>()), elements_(elements) {}
  std::uint64_t word(std::int64_t i) const {
    const std::int64_t left = elements_ - 64 * i;
    const auto all = static_cast<std::uint64_t>(words_[i]);
    return left >= 64 ? all : all & ((std::uint64_t{1} << left) - 1);
  }
  // How many are set of elements before this one, a multiple of 64 or the end.
  std::int64_t before(std::int64_t element) const {
    std::int64_t set = 0;
    for (std::int64_t i = 0; i < mask_words(element); ++i) set += std::popcount(word(i));
    return set;
  }
  // body(i, j) for the elements i from begin on that are set, where j of all that are set come before.
  template <class Body>
  void each(std::int64_t begin, std::int64_t count, Body&& body) const {
    std::int64_t j = before(begin);
    for (std::int64_t i = begin / 64; i < mask_words(begin + count); ++i)
      for (std::uint64_t left = word(i); left != 0; left &= left - 1) body(64 * i + std::countr_zero(left), j++);
  }

 private:
  const std::int64_t* words_;
  std::int64_t elements_;
};

void check_mask(const char* op, const MaskBits& bits, std::int64_t n, std::int64_t k) {
  LOCKSTEP_CHECK(bits.before(n) == k, "{}: the mask keeps {} of {} elements, and {} are packed", op, bits.before(n), n,
                 k);
}

}  // namespace

// Ranges begin at multiples of 64 elements (rows.h), and so whole words are of one range.
void pack(const PackArgs& a, lockstep::Stream& stream) {
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t n = a.dense.elements();
    const MaskBits bits(a.mask, n);
    check_mask("pack", bits, n, a.packed.elements());
    const S* dense = a.dense.data<S>();
    S* packed = a.packed.data<S>();
    each_range(Stream::of(stream), n, [&](std::int64_t begin, std::int64_t count) {
      bits.each(begin, count, [&](std::int64_t i, std::int64_t j) { packed[j] = dense[i]; });
    });
  });
}

void unpack(const UnpackArgs& a, lockstep::Stream& stream) {
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t n = a.dense.elements();
    const MaskBits bits(a.mask, n);
    check_mask("unpack", bits, n, a.packed.elements());
    S* dense = a.dense.data<S>();
    const S* packed = a.packed.data<S>();
    const S rest = convert<double, S>(a.rest);
    each_range(Stream::of(stream), n, [&](std::int64_t begin, std::int64_t count) {
      std::fill_n(dense + begin, count, rest);
      bits.each(begin, count, [&](std::int64_t i, std::int64_t j) { dense[i] = packed[j]; });
    });
  });
}

void keep(const KeepArgs& a, lockstep::Stream& stream) {
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t n = a.dense.elements();
    const MaskBits bits(a.mask, n);
    S* dense = a.dense.data<S>();
    const S rest = convert<double, S>(a.rest);
    each_range(Stream::of(stream), n, [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t i = begin; i < begin + count; ++i)
        if ((bits.word(i / 64) >> (i % 64) & 1) == 0) dense[i] = rest;
    });
  });
}

}  // namespace lockstep::cpu
