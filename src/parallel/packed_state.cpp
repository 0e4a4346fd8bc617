// State under a mask (zero_shards.h).
#include <bit>
#include <span>

#include "kernels/elementwise.h"
#include "parallel/zero_shards.h"
#include "tensor/transfer.h"

namespace lockstep {

// On meta nobody knows which elements stay: as if they were spread evenly.
std::vector<std::int64_t> ZeroShard::count_windows(const Survivors& stay, std::int64_t elements) {
  const std::int64_t windows = ceil_div(elements, Room::kWindow);
  std::vector<std::int64_t> before{0};
  for (std::int64_t w = 1; w <= windows; ++w) {
    std::int64_t kept = stay.kept * w / windows;
    if (!stay.words.empty()) {
      kept = before.back();
      const std::int64_t end = std::min(mask_words(elements), w * Room::kWindow / 64);
      for (std::int64_t i = (w - 1) * Room::kWindow / 64; i < end; ++i)
        kept += std::popcount(stay.words[static_cast<std::size_t>(i)]);
    }
    before.push_back(kept);
  }
  return before;
}

// From the packed or whole state that is there now to what stays of it.
void ZeroShard::repack(const Tensor& to, const Tensor& from, const Tensor& mask,
                       const std::vector<std::int64_t>& before, const Room& room, Stream& stream) const {
  each_window(before, [&](std::int64_t w, std::int64_t begin, std::int64_t count) {
    const auto in_window = [&](const Tensor& words) { return words.slice(0, begin / 64, mask_words(count)); };
    const auto of_window = [w](const Tensor& kept, const std::vector<std::int64_t>& all) {
      const auto at = static_cast<std::size_t>(w);
      return kept.slice(0, all[at], all[at + 1] - all[at]);
    };
    Tensor dense = room.place(0, from.dtype(), count);
    if (packed())
      unpack({.dense = dense, .packed = of_window(from, before_), .mask = in_window(this->mask())}, stream);
    else
      dense = from.slice(0, begin, count);
    pack({.packed = of_window(to, before), .dense = dense, .mask = in_window(mask)}, stream);
  });
}

void ZeroShard::set_mask(const Survivors& stay, const Room& room, Memory& memory, Stream& stream) {
  LOCKSTEP_CHECK(optimizer_ && !offloads_ && !offloads_weights_, "{} cannot be masked", layout_.name());
  const std::int64_t part = part_elements(), kept = std::max<std::int64_t>(stay.kept, 1);
  const std::string& unit = layout_.name();
  const std::vector<std::int64_t> before = count_windows(stay, part);
  Buffer words = memory.allocate(mask_words(part) * 8, Tag::optimizer, unit);
  const Tensor mask = view(words, DType::i64, {mask_words(part)});
  if (!stay.words.empty()) upload(mask, stay.words.data(), stream);

  FlatOptimizer optimizer(spec_, {.elements = kept, .decayed = stay.decayed, .moments = types_.moments}, memory, unit,
                          stream);
  const std::vector<Tensor> from = optimizer_->state(), to = optimizer.state();
  for (std::size_t i = 0; i < to.size(); ++i) repack(to[i], from[i], mask, before, room, stream);
  optimizer_ = std::move(optimizer);
  if (masters_apart()) {
    Buffer masters = memory.allocate(kept * size_of(types_.master), Tag::optimizer, unit);
    repack(view(masters, types_.master, {kept}), own_master(), mask, before, room, stream);
    masters_ = std::move(masters);
  }
  mask_ = std::move(words);
  before_ = before;
  keep({.dense = own_weight(), .mask = mask}, stream);
}

void ZeroShard::update(ConstTensor gradient, ConstTensor control, const Room& room, Stream& stream) {
  if (!packed()) return update(gradient, control, stream);
  const std::vector<Tensor> all = optimizer_->state();
  const Tensor weights = own_weight(), words = mask();
  each_window(before_, [&](std::int64_t w, std::int64_t begin, std::int64_t count) {
    const std::int64_t first = before_[static_cast<std::size_t>(w)],
                       kept = before_[static_cast<std::size_t>(w) + 1] - first;
    if (kept == 0) return;
    const Tensor bits = words.slice(0, begin / 64, mask_words(count)), here = weights.slice(0, begin, count);
    const Tensor own = room.place(0, gradient.dtype(), kept), weight = room.place(1, types_.compute, kept);
    pack({.packed = own, .dense = gradient.slice(0, begin, count), .mask = bits}, stream);
    // Also where masters are apart: a step that does not update leaves it as it is.
    pack({.packed = weight, .dense = here, .mask = bits}, stream);
    std::vector<Tensor> state;
    for (const Tensor& moment : all) state.push_back(moment.slice(0, first, kept));
    optimizer_->update({.begin = first,
                        .master = masters_apart() ? own_master().slice(0, first, kept) : weight,
                        .weight = masters_apart() ? weight : Tensor{},
                        .state = state,
                        .gradient = own},
                       control, stream);
    unpack({.dense = here, .packed = weight, .mask = bits}, stream);
  });
}

}  // namespace lockstep
