// Products of few rows: what a token that is generated costs. The right operand is much larger than all else, so it is
// read once, in place, as fast as memory gives it, and nothing of it is packed.
//
// The bits are those of gemm.h's product, which a row has in a larger batch: every element is summed over k ascending,
// in one chain of fmas within a depth block and one addition for each block. So it may be chosen by shape alone,
// anywhere (few_rows.h). Lanes run over columns; where these are rows of memory (transpose_b), squares are turned in
// registers.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/integers.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/turned_columns.h"
#include "kernels/matmul.h"
#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

// Of elements of type S, with a result of type R.
template <class S, class R>
class FewRows {
  using T = Compute<S>;
  using V = Vec<T>;
  static constexpr int W = kLanes<T>, P = TurnedColumns<S>::kColumns;
  static constexpr bool kSumsApart = !std::is_same_v<T, R>;
  static constexpr std::int64_t kDepth = Gemm<T>::kDepth;

 public:
  FewRows(const MatmulArgs& a, Stream& stream)
      : a_(a),
        stream_(stream),
        pb_(a.b.data<S>()),
        pc_(a.c.data<R>()),
        M_(a.c.dim(0)),
        N_(a.c.dim(1)),
        K_(a.a.dim(1)),
        stride_(a.b.stride(0)),
        bias_(a.bias ? a.bias.data<S>() : nullptr),
        rows_(static_cast<T*>(stream.scratch(0))) {}

  void run() {
    if (M_ == 1) return run<1>();
    if (M_ == 2) return run<2>();
    if (M_ <= 4) return run<4>();
    run<8>();
  }

 private:
  // kM rows at a time; a piece of B that is read again for the next ones is in L2.
  template <int kM>
  void run() {
    for (std::int64_t m = 0; m < M_; m += kM) pack_rows<kM>(m);
    if (a_.transpose_b) {
      const std::int64_t groups = ceil_div(N_, std::int64_t{P});
      const std::int64_t piece =
          std::max<std::int64_t>(1, kPieceBytes / (P * K_ * static_cast<std::int64_t>(sizeof(S))));
      stream_.workers().each(ceil_div(groups, piece), [&](std::int64_t item, int) {
        for (std::int64_t g = item * piece; g < std::min(groups, (item + 1) * piece); ++g)
          for (std::int64_t m = 0; m < M_; m += kM) turned<kM>(m, g * P);
      });
    } else {
      const std::int64_t share = ceil_div(N_, std::int64_t{4} * stream_.workers().threads());
      const std::int64_t width = std::clamp<std::int64_t>(round_up(share, std::int64_t{W}), kNarrow, kWide);
      stream_.workers().each(ceil_div(N_, width), [&](std::int64_t item, int worker) {
        const std::int64_t j = item * width;
        for (std::int64_t m = 0; m < M_; m += kM)
          strip<kM>(m, j, std::min(width, N_ - j), static_cast<T*>(stream_.scratch(worker)) + kRowsRoom);
      });
    }
  }

  // Rows of A from m on as [k][row], in the compute type; rows that are missing are zero.
  template <int kM>
  void pack_rows(std::int64_t m) {
    const std::int64_t stride = a_.a.stride(0), some = std::min<std::int64_t>(kM, M_ - m);
    const S* from = a_.a.template data<S>() + m * stride;
    T* to = rows_ + m * K_;
    for (std::int64_t k = 0; k < K_; ++k)
      for (int r = 0; r < kM; ++r) to[k * kM + r] = r < some ? static_cast<T>(from[r * stride + k]) : T(0);
  }

  // The columns of TurnedColumns from j on, which are rows of B. Where B ends they begin earlier, and those before j
  // are another's.
  template <int kM>
  void turned(std::int64_t m, std::int64_t j) {
    const std::int64_t begin = std::min(j, N_ - P), some = std::min<std::int64_t>(kM, M_ - m);
    const S* from = pb_ + begin * stride_;
    const T* rows = rows_ + m * K_;
    T total[kM][P] = {};
    for (std::int64_t r = 0; r < some; ++r)
      for (std::int64_t c = j - begin; c < P; ++c) total[r][c] = start_of(m + r, begin + c);
    for (std::int64_t k0 = 0; k0 < K_; k0 += kDepth) {
      alignas(64) T sums[kM][P];
      TurnedColumns<S>::template multiply<kM>(sums, rows + k0 * kM, from + k0, stride_, std::min(kDepth, K_ - k0));
      add_block(total[0], sums[0], kM * P, k0);
    }
    for (std::int64_t r = 0; r < some; ++r)
      for (std::int64_t c = j - begin; c < P; ++c) finish(m + r, begin + c, total[r][c]);
  }

  // `width` columns from j on, where B's rows are along them. The sums are in the worker's scratch.
  template <int kM>
  void strip(std::int64_t m, std::int64_t j, std::int64_t width, T* room) {
    T *sums = room, *total = room + kM * kWide;
    const std::int64_t some = std::min<std::int64_t>(kM, M_ - m);
    const T* rows = rows_ + m * K_;
    for (std::int64_t r = 0; r < some; ++r)
      for (std::int64_t i = 0; i < width; ++i) total[r * kWide + i] = start_of(m + r, j + i);
    for (std::int64_t k0 = 0; k0 < K_; k0 += kDepth) {
      const std::int64_t end = std::min(K_, k0 + kDepth);
      for (int r = 0; r < kM; ++r) std::fill_n(sums + r * kWide, width, T(0));
      std::int64_t k = k0;
      for (; k + kTogether <= end; k += kTogether) add_rows<kM, kTogether>(sums, rows + k * kM, j, width, k);
      for (; k < end; ++k) add_rows<kM, 1>(sums, rows + k * kM, j, width, k);
      for (std::int64_t r = 0; r < some; ++r) add_block(total + r * kWide, sums + r * kWide, width, k0);
    }
    for (std::int64_t r = 0; r < some; ++r)
      for (std::int64_t i = 0; i < width; ++i) finish(m + r, j + i, total[r * kWide + i]);
  }

  // sums += the products of kM rows and kRows of B from k on.
  template <int kM, int kRows>
  [[gnu::noinline]] void add_rows(T* sums, const T* rows, std::int64_t j, std::int64_t width, std::int64_t k) const {
    const S* from = pb_ + k * stride_ + j;
    const std::int64_t stride = stride_;
    for_vectors<T>(width, [&](std::int64_t i, auto load_b, auto) {
      V right[kRows];
#pragma GCC unroll 8
      for (int s = 0; s < kRows; ++s) {
        const S* p = from + s * stride + i;
        __builtin_prefetch(p + kRows * stride);
        right[s] = load_b(p);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kM; ++r) {
        V sum = load(sums + r * kWide + i);
#pragma GCC unroll 8
        for (int s = 0; s < kRows; ++s) sum = fma(broadcast(rows[s * kM + r]), right[s], sum);
        store(sums + r * kWide + i, sum);
      }
    });
  }

  // What the product adds a depth block to and what it makes of the sum, as matmul.cpp has it: where C can hold the
  // sums and holds none yet, the first block is the sum.
  T start_of(std::int64_t i, std::int64_t j) const {
    return a_.accumulate ? static_cast<T>(pc_[i * a_.c.stride(0) + j]) : T(0);
  }
  void add_block(T* total, const T* sums, std::int64_t count, std::int64_t k0) const {
    const bool add = kSumsApart || a_.accumulate || k0 > 0;
    for (std::int64_t i = 0; i < count; ++i) total[i] = add ? total[i] + sums[i] : sums[i];
  }
  void finish(std::int64_t i, std::int64_t j, T sum) const {
    if (bias_) sum += static_cast<T>(bias_[j]);
    pc_[i * a_.c.stride(0) + j] = static_cast<R>(sum);
  }

  static constexpr std::int64_t kPieceBytes = 64 << 10;       // of B, in one piece of work
  static constexpr std::int64_t kNarrow = 128, kWide = 1024;  // columns of a strip
  static constexpr int kTogether = 4;                         // rows of a strip
  static constexpr std::int64_t kRowsRoom = kScratchBytes / 2 / sizeof(T);
  static_assert(2 * 8 * kWide * sizeof(T) <= kScratchBytes / 2);

  const MatmulArgs& a_;
  Stream& stream_;
  const S* pb_;
  R* pc_;
  std::int64_t M_, N_, K_, stride_;
  const S* bias_;
  T* rows_;
};

}  // namespace lockstep::cpu
