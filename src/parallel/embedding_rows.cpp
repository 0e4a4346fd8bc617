#include "parallel/embedding_rows.h"

#include <algorithm>
#include <bit>

#include "base/integers.h"
#include "kernels/table_rows.h"
#include "tensor/transfer.h"

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
  rows_ = memory.allocate(most_rows(options) * 4, Tag::communication, "rows of the embedding");
  if (stream.device() == Device::meta) return;
  bits_.resize(static_cast<std::size_t>((ranks.size() + 1) * words_));
  numbers_.reserve(static_cast<std::size_t>(options.rows.count));
}

void EmbeddingRows::find(std::span<const std::int32_t> tokens) {
  const std::int64_t all = ranks_.size() * words_, most = most_rows(options_);
  const Tensor gathered = view(present_, DType::i32, {all}), mine = view(present_, DType::i32, {words_}, all);
  if (stream_.device() == Device::meta) {
    if (words_ > 0) ranks_.all_gather(gathered, mine)->wait();
    found_ = std::min(options_.rows.count, options_.most_tokens);
    dense_ = found_ > most;
    found_ = std::min(found_, most);
    return;
  }
  const auto of_rank = [this](std::int64_t r) {
    return std::span(bits_).subspan(static_cast<std::size_t>(r * words_), static_cast<std::size_t>(words_));
  };
  const std::span own = of_rank(ranks_.size());
  std::ranges::fill(own, 0);
  for (const std::int32_t token : tokens) {
    const std::int64_t row = token - options_.rows.first;
    if (row < 0 || row >= options_.rows.count) continue;
    own[static_cast<std::size_t>(row / kBits)] |= static_cast<std::int32_t>(1u << (row % kBits));
  }
  if (words_ > 0) {
    upload(mine, own.data(), stream_);
    ranks_.all_gather(gathered, mine)->wait();
    download(bits_.data(), gathered, stream_);
  }
  numbers_.clear();
  for (std::int64_t w = 0; w < words_; ++w) {
    std::uint32_t some = 0;
    for (std::int64_t r = 0; r < ranks_.size(); ++r)
      some |= static_cast<std::uint32_t>(of_rank(r)[static_cast<std::size_t>(w)]);
    for (; some != 0; some &= some - 1)
      numbers_.push_back(static_cast<std::int32_t>(w * kBits + std::countr_zero(some)));
  }
  found_ = std::ssize(numbers_);
  dense_ = found_ > most;
  if (!dense_ && found_ > 0) upload(listed(), numbers_.data(), stream_);
}

Tensor EmbeddingRows::by_rows(const ConstTensor& table) const {
  return Tensor(const_cast<void*>(table.raw()), table.dtype(), table.device(), {options_.rows.count, options_.width});
}

Tensor EmbeddingRows::pack(const ConstTensor& table) {
  if (found_ > 0) gather_rows({.y = packed(), .table = by_rows(table), .rows = listed()}, stream_);
  return view(packed_, options_.dtype, {found_ * options_.width});
}

void EmbeddingRows::unpack(const Tensor& table) {
  if (found_ > 0) scatter_rows({.table = by_rows(table), .x = packed(), .rows = listed()}, stream_);
}

}  // namespace lockstep
