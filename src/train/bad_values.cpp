#include "train/bad_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/transfer.h"
#include "train/host_values.h"

namespace lockstep {

namespace {

constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();

// " (element 12 is nan)" for the first element that is not finite; nothing when all are.
std::optional<std::string> first_bad_element(ConstTensor t, Stream& stream) {
  const std::vector<double> values = to_doubles(t, stream);
  const auto bad = std::ranges::find_if_not(values, [](double v) { return std::isfinite(v); });
  if (bad == values.end()) return std::nullopt;
  return fmt::format("element {} is {}", bad - values.begin(), *bad);
}

// The same of the runs of a logical tensor, which knows the element by its place there.
std::optional<std::string> first_bad_element(ConstTensor flat, const std::vector<Run>& runs, Stream& stream) {
  const std::vector<double> values = to_doubles(flat, stream);
  for (const Run& run : runs)
    for (std::int64_t row = 0; row < run.rows(); ++row)
      for (std::int64_t i = 0; i < run.row(); ++i)
        if (const double v = values[static_cast<std::size_t>(run.here.begin + row * run.here.pitch + i)];
            !std::isfinite(v))
          return fmt::format("element {} is {}", run.there.begin + row * run.there.pitch + i, v);
  return std::nullopt;
}

// The order of phases where one rank has everything: what is first does not depend on who runs what in which order.
std::int64_t serial_place(const Action& a, int units) {
  const std::int64_t after = units - 1 - a.unit;  // units
  const std::int64_t within = a.kind == ActionKind::forward          ? a.unit
                              : a.kind == ActionKind::backward_input ? units + 2 * after
                                                                     : units + 2 * after + 1;
  return a.micro * 3LL * units + within;
}

}  // namespace

// The slots that a phase of a unit writes, about in the order it writes them: a unit declares its slots in the order of
// its forward, and its output comes last.
std::vector<Slot> BadValueSearch::written_by(const Action& action) const {
  const auto& slots = setup_.model.slots().all();
  std::vector<Slot> inside, output;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].born != Moment{action.unit, static_cast<Phase>(action.kind)}) continue;
    if (slots[i].offload == SlotOffload::comes_back) continue;                          // written by the forward
    if (slots[i].last == slots[i].born && slots[i].last_half == Half::first) continue;  // overwritten by now
    (slots[i].last.unit == action.unit ? inside : output).push_back(static_cast<Slot>(i));
  }
  if (action.kind != ActionKind::forward) std::ranges::reverse(inside);
  inside.insert(inside.end(), output.begin(), output.end());
  return inside;
}

std::optional<std::string> BadValueSearch::bad_value_after(const Action& action) const {
  const std::string unit = setup_.model.unit(action.unit).layout().name();
  const auto& slots = setup_.model.slots().all();
  for (const Slot slot : written_by(action)) {
    if (const auto bad = first_bad_element(executor_.activations(action.micro)[slot], setup_.stream))
      return fmt::format("activation '{}' of {} after {} ({})", slots[slot].name, unit, to_string(action), *bad);
  }
  if (action.kind != ActionKind::backward_weight) return std::nullopt;
  // This rank's own, before it is summed over ranks.
  const UnitLayout& layout = setup_.model.unit(action.unit).layout();
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    if (layout.parameters()[p].frozen) continue;
    const Tensor gradient = state_.unit(action.unit).gradients[p].reshape({layout.parameters()[p].elements()});
    for (std::size_t i = 0; i < layout.parameters()[p].pieces.size(); ++i)
      if (const auto bad = first_bad_element(gradient, layout.parameters()[p].runs_of(i), setup_.stream))
        return fmt::format("the gradient of {} after {} ({})", layout.parameters()[p].pieces[i].name, to_string(action),
                           *bad);
  }
  return std::nullopt;
}

// What the rank that found the earliest bad value says, on all ranks.
std::optional<std::string> BadValueSearch::earliest_of(std::int64_t place, const std::string& message) {
  Communicator& ranks = setup_.ranks.hosts;
  if (ranks.size() == 1) return place == kNowhere ? std::nullopt : std::optional(message);
  std::vector<std::int64_t> places(static_cast<std::size_t>(ranks.size()));
  ranks
      .all_gather(Tensor(places.data(), DType::i64, ranks.device(), {ranks.size()}),
                  ConstTensor(&place, DType::i64, ranks.device(), {1}))
      ->wait();
  const auto first = std::ranges::min_element(places);
  if (*first == kNowhere) return std::nullopt;
  const int rank = static_cast<int>(first - places.begin());
  std::string text = message;
  share_text(ranks, text, rank);
  return fmt::format("{} on rank {}", text, rank);
}

std::optional<std::string> BadValueSearch::find(std::int64_t batch_number) {
  std::int64_t place = kNowhere;
  std::string message;
  const auto found = [&](std::int64_t at, const std::string& what) {
    if (place == kNowhere) place = at, message = what;
  };
  for (const RankState::Named& named : state_.tensors())
    if (const auto bad = first_bad_element(named.master, named.runs, setup_.stream))
      found(-1, fmt::format("the weight {} ({})", named.tensor.name, *bad));
  executor_.begin(true, batch_number);
  for (const Action& action : executor_.gradient_actions()) {
    // Sums over ranks are left out: each looks at what is its own. Losses, weights and activations may need all ranks,
    // so all run to the end.
    if (action.kind == ActionKind::reduce) continue;
    executor_.run(action);
    if (place != kNowhere || !is_phase(action.kind)) continue;
    if (const auto bad = bad_value_after(action)) found(serial_place(action, setup_.model.units()), *bad);
  }
  executor_.settle_links();
  return earliest_of(place, message);
}

}  // namespace lockstep
