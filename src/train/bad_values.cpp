// Replica::find_bad_value: the step again, with a look at everything each action wrote.
#include <algorithm>
#include <cmath>

#include "tensor/transfer.h"
#include "train/replica.h"

namespace lockstep {

namespace {

// " (element 12 is nan)" for the first element that is not finite; nothing when all are.
std::optional<std::string> first_bad_element(ConstTensor t, Stream& stream) {
  const std::vector<double> values = to_doubles(t, stream);
  const auto bad = std::ranges::find_if_not(values, [](double v) { return std::isfinite(v); });
  if (bad == values.end()) return std::nullopt;
  return fmt::format("element {} is {}", bad - values.begin(), *bad);
}

}  // namespace

// The slots that a phase of a unit writes, about in the order it writes them: a unit declares its slots in the order of
// its forward, and what it hands on comes last.
std::vector<Slot> Replica::written_by(const Action& action) const {
  const auto& slots = model_.slots().all();
  std::vector<Slot> inside, handed_on;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].born != Moment{action.unit, static_cast<Phase>(action.kind)}) continue;
    if (slots[i].last == slots[i].born && slots[i].last_half == Half::first) continue;  // others lie there by now
    (slots[i].last.unit == action.unit ? inside : handed_on).push_back(static_cast<Slot>(i));
  }
  if (action.kind != ActionKind::forward) std::ranges::reverse(inside);
  inside.insert(inside.end(), handed_on.begin(), handed_on.end());
  return inside;
}

std::optional<std::string> Replica::bad_value_after(const Action& action) const {
  const std::string unit = model_.unit(action.unit).layout().name();
  const auto& slots = model_.slots().all();
  for (const Slot slot : written_by(action)) {
    if (const auto bad = first_bad_element(activations_.of(action.micro)[slot], stream_))
      return fmt::format("activation '{}' of {} after {} ({})", slots[slot].name, unit, to_string(action), *bad);
  }
  if (action.kind != ActionKind::backward_weight) return std::nullopt;
  std::optional<std::string> found;
  storage_[action.unit].each_piece([&](const UnitStorage::Piece& piece) {
    if (found) return;
    if (const auto bad = first_bad_element(piece.of(storage_[action.unit].flat_gradient()), stream_))
      found = fmt::format("the gradient of {} after {} ({})", piece.tensor.name, to_string(action), *bad);
  });
  return found;
}

std::optional<std::string> Replica::find_bad_value(std::span<const std::int32_t> tokens,
                                                   std::span<const std::int32_t> targets) {
  for (const Named& named : tensors())
    if (const auto bad = first_bad_element(named.master, stream_))
      return fmt::format("the weight {} ({})", named.tensor.name, *bad);
  batch_.set(tokens, targets, 0, stream_);
  for (std::size_t i = 0; i < norm_at_; ++i) {
    if (actions_[i].micro < 0) continue;  // of this rank alone: another may have found what it looks for
    run(actions_[i], true, std::max<std::int64_t>(0, batches_done_ - 1));
    if (auto bad = bad_value_after(actions_[i])) return bad;
  }
  return std::nullopt;
}

}  // namespace lockstep
