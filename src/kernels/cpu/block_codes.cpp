#include "kernels/block_codes.h"

#include "kernels/cpu/block_code.h"
#include "kernels/cpu/rows.h"
#include "kernels/tree_sum.h"

namespace lockstep::cpu {

namespace {

// body(first element, elements, first word) of every block.
template <class Body>
void each_block(Stream& stream, BlockForm form, std::int64_t n, Body&& body) {
  constexpr std::int64_t kBlocksAnItem = 64;
  const std::int64_t blocks = ceil_div(n, kCodedBlock), words = words_of_block(form);
  stream.workers().each(ceil_div(blocks, kBlocksAnItem), [&](std::int64_t item, int) {
    for (std::int64_t b = item * kBlocksAnItem; b < std::min(blocks, (item + 1) * kBlocksAnItem); ++b)
      body(b * kCodedBlock, std::min(kCodedBlock, n - b * kCodedBlock), b * words);
  });
}

}  // namespace

void encode_blocks(const EncodeBlocksArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using A = AccumulatorOf<S>;
    const S* x = a.x.data<S>();
    A* residual = a.residual ? a.residual.data<A>() : nullptr;
    CodeWord* code = a.code.data<CodeWord>();
    each_block(Stream::of(stream), a.form, a.x.elements(), [&](std::int64_t at, std::int64_t count, std::int64_t word) {
      Block<A> v{}, decoded;
      for (std::int64_t i = 0; i < count; ++i) v[i] = convert<S, A>(x[at + i]);
      if (residual)
        for (std::int64_t i = 0; i < count; ++i) v[i] += residual[at + i];
      encode(a.form, v, count, code + word);
      if (!residual) return;
      decode(a.form, code + word, decoded);
      for (std::int64_t i = 0; i < count; ++i) {
        const A left = v[i] - decoded[i];
        residual[at + i] = std::isfinite(left) ? left : 0;
      }
    });
  });
}

void decode_blocks(const DecodeBlocksArgs& a, lockstep::Stream& stream) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using A = AccumulatorOf<S>;
    S* y = a.y.data<S>();
    each_block(Stream::of(stream), a.form, a.y.elements(), [&](std::int64_t at, std::int64_t count, std::int64_t word) {
      Block<A> partial[kMostPartials];
      int height = 0;
      for (std::size_t c = 0; c < a.codes.size(); ++c) {
        decode(a.form, a.codes[c].data<CodeWord>() + word, partial[height++]);
        for (int joins = a.joins[c]; joins > 0; --joins) {
          --height;
          for (int i = 0; i < kBlock; ++i) partial[height - 1][i] += partial[height][i];
        }
      }
      for (std::int64_t i = 0; i < count; ++i) y[at + i] = convert<A, S>(partial[0][i]);
    });
  });
}

}  // namespace lockstep::cpu
