#include "train/batch_rows.h"

#include <algorithm>

#include "base/integers.h"
#include "data/dataset.h"

namespace lockstep {

BatchRows::BatchRows(const Sizes& sizes) : sizes_(sizes) {
  if (!sizes.varlen) return;
  whole_.assign(static_cast<std::size_t>(sizes.micro), sizes.expected);
  if (sizes.expected == 0) places_.assign(static_cast<std::size_t>(sizes.B * sizes.T), kNone);
}

void BatchRows::find(std::span<const std::int32_t> tokens) {
  if (!sizes_.varlen) return;
  const std::int64_t samples = sizes_.B / sizes_.micro;
  LOCKSTEP_CHECK(std::ssize(tokens) == sizes_.B * sizes_.T, "{} tokens for {} samples of {}", tokens.size(), sizes_.B,
                 sizes_.T);
  for (int m = 0; m < sizes_.micro; ++m) {
    const std::int64_t first = m * row_room();
    std::int64_t used = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample)
      for (std::int64_t t = 0; t < sizes_.T; ++t) {
        const std::int64_t at = first + sample * sizes_.T + t;
        if (tokens[static_cast<std::size_t>(at)] == kPadding) break;
        places_[static_cast<std::size_t>(first + used++)] = at;
      }
    const std::int64_t rounded =
        std::min(round_up(std::max(used, sizes_.least), sizes_.context.multiple()), row_room());
    LOCKSTEP_CHECK(used <= rounded, "{} tokens in room for {}", used, rounded);
    std::fill_n(places_.begin() + first + used, rounded - used, kNone);
    whole_[static_cast<std::size_t>(m)] = rounded;
  }
}

RowExtent BatchRows::extent(int m, const TensorSplit& split) const {
  return {.tokens = count(m), .room = room(), .own = split.own_rows(count(m)), .own_room = split.own_rows(room())};
}

std::int64_t BatchRows::place_in_whole(int m, std::int64_t row) const {
  const std::int64_t at = m * row_room() + row;
  return sizes_.varlen ? places_[static_cast<std::size_t>(at)] : at;
}

std::int64_t BatchRows::place(int m, std::int64_t row) const {
  if (sizes_.varlen) return place_in_whole(m, sizes_.context.position(whole(m), row));
  const std::int64_t here = sizes_.context.tokens(sizes_.T);
  return place_in_whole(m, row / here * sizes_.T + sizes_.context.position(sizes_.T, row % here));
}

}  // namespace lockstep
