#include "parallel/embedding_rows.h"

#include <algorithm>
#include <bit>

#include "base/integers.h"
#include "kernels/elementwise.h"

namespace lockstep {

namespace {

constexpr std::int64_t kBits = 32;

}  // namespace

std::int64_t EmbeddingRows::most_rows(const Options& o) {
  const std::int64_t all = std::min(o.rows.count, o.most_tokens);
  return o.form == EmbeddingGradient::automatic ? std::clamp<std::int64_t>((o.rows.count - o.beside) / 2, 0, all) : all;
}

EmbeddingRows::EmbeddingRows(const Options& options, Communicator& ranks, Memory& memory, Stream& stream)
    : options_(options), ranks_(ranks), stream_(stream), words_(ceil_div(options.rows.count, kBits)) {
  present_ = memory.allocate((ranks.size() + 1) * words_ * 4, Tag::communication, "rows of the embedding");
  packed_ = memory.allocate(most_rows(options) * options.width * size_of(options.dtype), Tag::communication,
                            "rows of the embedding");
  runs_.reserve(static_cast<std::size_t>(ceil_div(options.rows.count, 2)));
}

void EmbeddingRows::find(std::span<const std::int32_t> tokens) {
  const std::int64_t all = ranks_.size() * words_;
  const Tensor gathered = view(present_, DType::i32, {all}), mine = view(present_, DType::i32, {words_}, all);
  const bool counted = stream_.device() == Device::meta;
  if (!counted) {
    const std::span bits(mine.data<std::int32_t>(), static_cast<std::size_t>(words_));
    std::ranges::fill(bits, 0);
    for (const std::int32_t token : tokens) {
      const std::int64_t row = token - options_.rows.first;
      if (row < 0 || row >= options_.rows.count) continue;
      bits[static_cast<std::size_t>(row / kBits)] |= static_cast<std::int32_t>(1u << (row % kBits));
    }
  }
  if (words_ > 0) ranks_.all_gather(gathered, mine)->wait();
  runs_.clear();
  found_ = 0;
  const std::int64_t most = most_rows(options_);
  if (counted) {
    found_ = std::min(options_.rows.count, options_.most_tokens);
    runs_.push_back({0, 0, std::min(found_, most)});
  } else {
    const auto* const words = gathered.data<std::int32_t>();
    for (std::int64_t w = 0; w < words_; ++w) {
      std::uint32_t some = 0;
      for (std::int64_t r = 0; r < ranks_.size(); ++r) some |= static_cast<std::uint32_t>(words[r * words_ + w]);
      for (; some != 0; some &= some - 1) add(w * kBits + std::countr_zero(some));
    }
  }
  dense_ = found_ > most;
}

void EmbeddingRows::add(std::int64_t row) {
  if (!runs_.empty() && runs_.back().row + runs_.back().count == row)
    ++runs_.back().count;
  else
    runs_.push_back({row, found_, 1});
  ++found_;
}

Tensor EmbeddingRows::pack(const ConstTensor& table) {
  const std::int64_t C = options_.width;
  const Tensor packed = view(packed_, options_.dtype, {found_ * C});
  for (const Run& run : runs_)
    cast({.y = packed.slice(0, run.packed * C, run.count * C), .x = table.slice(0, run.row * C, run.count * C)},
         stream_);
  return packed;
}

void EmbeddingRows::unpack(const Tensor& table) {
  const std::int64_t C = options_.width;
  const Tensor packed = view(packed_, options_.dtype, {found_ * C});
  for (const Run& run : runs_)
    cast({.y = table.slice(0, run.row * C, run.count * C), .x = packed.slice(0, run.packed * C, run.count * C)},
         stream_);
}

}  // namespace lockstep
