#include "data/packed_dataset.h"

#include <array>

#include "base/checksum.h"
#include "base/error.h"

namespace lockstep {

PackedDataset::PackedDataset(const TokenSource& source, const DocumentIndex& index, std::int64_t first,
                             std::int64_t count, bool variable)
    : source_(source), index_(index), first_(first), count_(count), padding_(variable ? kPadding : kBeginsDocument) {
  LOCKSTEP_CHECK(first >= 0 && count >= 0 && first <= index.samples() && count <= index.samples() - first,
                 "{} samples from {} on, of {}", count, first, index.samples());
}

void PackedDataset::sample(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  LOCKSTEP_CHECK(index >= 0 && index < count_, "sample {} of {}", index, count_);
  const auto T = static_cast<std::size_t>(index_.T());
  LOCKSTEP_CHECK(tokens.size() == T && targets.size() == T, "room for {} tokens and {} targets, of {}", tokens.size(),
                 targets.size(), T);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < index_.pieces(first_ + index); ++i) {
    const DocumentIndex::Piece piece = index_.piece(first_ + index, i);
    const auto count = static_cast<std::size_t>(piece.count), next = count - (piece.continues ? 0 : 1);
    source_.read(piece.first, tokens.subspan(at, count));
    source_.read_targets(piece.first + 1, targets.subspan(at, next));
    if (!piece.continues) targets[at + next] = kNoTarget;
    tokens[at] |= kBeginsDocument;
    at += count;
  }
  for (; at < T; ++at) {
    tokens[at] = padding_;
    targets[at] = kNoTarget;
  }
}

std::uint64_t PackedDataset::fingerprint() const {
  const std::array<std::uint64_t, 4> identity = {source_.fingerprint(), index_.fingerprint(),
                                                 static_cast<std::uint64_t>(first_),
                                                 static_cast<std::uint64_t>(count_)};
  return checksum(std::as_bytes(std::span(identity)));
}

}  // namespace lockstep
