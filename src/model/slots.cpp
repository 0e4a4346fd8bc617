#include "model/slots.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "spec/lifetimes.h"

namespace lockstep {

Slot Slots::add(SlotSpec spec) {
  slots_.push_back(std::move(spec));
  return static_cast<Slot>(slots_.size()) - 1;
}

Activations::Activations(const Slots& slots, const std::vector<Moment>& order, Memory& memory) {
  std::map<std::pair<int, Phase>, std::int64_t> when;
  for (std::size_t i = 0; i < order.size(); ++i) when[{order[i].unit, order[i].phase}] = static_cast<std::int64_t>(i);

  Lifetimes lives(kAlignment);
  std::vector<int> ids(slots.all().size(), -1);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const SlotSpec& s = slots.all()[i];
    const auto born = when.find({s.born.unit, s.born.phase}), last = when.find({s.last.unit, s.last.phase});
    if (born == when.end()) continue;  // evaluation has no backward: the slot is never written
    const std::int64_t end = last == when.end() ? born->second : last->second;
    // A slot handed to another unit lives until that unit has read it even when the phase it is kept for never comes.
    const auto read = when.find({s.last.unit, Phase::forward});
    const std::int64_t handed = s.born.phase == Phase::forward && read != when.end() ? read->second : end;
    ids[i] = lives.add(s.shape.elements() * size_of(s.dtype), born->second, std::max(end, handed));
  }
  buffer_ = memory.allocate(lives.plan(), Tag::activation);
  tensors_.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    const SlotSpec& s = slots.all()[i];
    tensors_[i] = view(buffer_, s.dtype, s.shape, lives.offset(ids[i]) / size_of(s.dtype));
  }
}

}  // namespace lockstep
