#include "parallel/zero_weights.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/tree_sum.h"
#include "parallel/gradients.h"
#include "spec/step/lifetimes.h"

namespace lockstep {

ZeroWeights::ZeroWeights(const Options& options, std::map<int, ZeroShard>& storage, ZeroGroups& groups, Memory& memory,
                         Stream& stream)
    : layouts_(options.layouts),
      storage_(storage),
      groups_(groups),
      stream_(stream),
      shape_(options.shape),
      overlap_(options.overlap),
      codes_(options.codes),
      root_(options.root),
      on_disk_(options.on_disk),
      before_fetch_(options.before_fetch),
      pending_(layouts_.size()),
      coded_(layouts_.size()),
      fetches_(static_cast<int>(layouts_.size()), stream) {
  std::int64_t bytes = 0;
  gathers_[0] = places(options.evaluation, bytes);
  gathers_[1] = places(options.step, bytes);
  if (bytes == 0) return;
  gathered_ = memory.allocate(bytes + (on_disk_ ? disk::kBlock : 0), Tag::gathered);
  if (on_disk_ && options.rooms) rooms_ = options.rooms->allocate(bytes + disk::kBlock, Tag::gathered);
  if (!on_disk_) return;
  const auto width = size_of(storage_.begin()->second.flat_weight().dtype());
  aligned_ = disk::bytes_to_block(gathered_) / width;
  rooms_begin_ = disk::bytes_to_block(rooms_) / width;
}

std::vector<ZeroWeights::Gather> ZeroWeights::places(const std::vector<Action>& list, std::int64_t& most) const {
  const int width = size_of(storage_.begin()->second.flat_weight().dtype());
  Lifetimes lives(on_disk_ ? disk::kBlock : kAlignment);
  struct Whole {
    int unit;
    std::int64_t begin, end;  // where its gather and its release stand in the list
    bool ends_call;
  };
  std::vector<Whole> found;
  std::map<int, std::size_t> now;  // by unit, of those that are whole
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i);
    if (list[i].kind == ActionKind::gather) {
      now[list[i].unit] = found.size();
      found.push_back({list[i].unit, at, at, !goes_with_next(list, i, shape_)});
    }
    if (list[i].kind == ActionKind::release) found[now.at(list[i].unit)].end = at;
  }
  for (const Whole& whole : found) {
    const std::int64_t elements = trained_elements(whole.unit) + frozen_elements(whole.unit);
    const std::int64_t code = codes_ ? 4 * coded_words(*codes_, elements) : 0;
    lives.add(stays(whole.unit) ? 0 : elements * width + code, whole.begin, whole.end);
  }
  most = std::max(most, lives.plan());
  std::vector<Gather> gathers;
  for (std::size_t k = 0; k < found.size(); ++k)
    gathers.push_back({lives.offset(static_cast<int>(k)) / width, found[k].ends_call});
  return gathers;
}

void ZeroWeights::publish(int unit) {
  const ZeroShard& storage = storage_.at(unit);
  pending_[unit] = std::make_shared<Communicator::Started>(
      groups_.servers() ? groups_.servers()->pull(storage.flat_weight())
      : root_           ? groups_.all().broadcast(storage.flat_weight(), *root_)
                        : groups_.sharers().all_gather(storage.flat_weight(), storage.own_weight()));
  if (!overlap_) ready(unit);
}

// Whole and on the device already.
bool ZeroWeights::stays(int unit) const { return !groups_.sharded() && !storage_.at(unit).weights_are_offloaded(); }

void ZeroWeights::begin(bool training) {
  training_ = training;
  next_ = 0;
}

ZeroWeights::Whole ZeroWeights::gather(int unit) {
  const Gather& gather = gathers_[training_ ? 1 : 0].at(next_++);
  const ZeroShard& shard = storage_.at(unit);
  const Tensor held = shard.own_weight();
  if (stays(unit)) return {held, shard.flat_frozen()};
  const Tensor whole = view(gathered_, held.dtype(), {trained_elements(unit)}, aligned_ + gather.offset);
  const Tensor frozen =
      view(gathered_, held.dtype(), {frozen_elements(unit)}, aligned_ + gather.offset + whole.elements());
  const Tensor place = whole.slice(0, groups_.shard().begin(layouts_[unit]->owned()), held.elements());
  if (shard.weights_are_offloaded()) {
    if (before_fetch_) before_fetch_(unit, fetches_.up());
    // In the room the shard is at the beginning of the unit's place, where a block begins.
    fetches_.start(
        unit, place, held,
        rooms_.memory() ? view(rooms_, held.dtype(), {held.elements()}, rooms_begin_ + gather.offset) : Tensor{});
    if (groups_.sharded()) fetches_.finish(unit);  // before others get it
  }
  if (groups_.sharded()) {
    if (whole.elements() > 0)
      together_.push_back(codes_ ? coded(unit, whole, gather.offset)
                                 : Operands{whole, shard.weights_are_offloaded() ? place : held});
    if (frozen.elements() > 0) together_.push_back({frozen, shard.flat_frozen()});
    units_together_.push_back(unit);
    if (!gather.ends_call) return {whole, frozen};
    const auto call = std::make_shared<Communicator::Started>(groups_.sharers().all_gather(together_));
    for (const int one : units_together_) pending_[one] = call;
    together_.clear();
    units_together_.clear();
  }
  if (!overlap_) ready(unit);
  return {whole, frozen};
}

// The codes of all shards, of which this rank makes those of its own.
Operands ZeroWeights::coded(int unit, const Tensor& whole, std::int64_t offset) {
  const UnitLayout& layout = *layouts_[unit];
  const Tensor held = storage_.at(unit).own_weight();
  const std::int64_t words = coded_words(*codes_, whole.elements()), begin = groups_.shard().begin(layout.owned());
  const Tensor code =
      view(gathered_, DType::i32, {words}, (offset + whole.elements()) * size_of(whole.dtype()) / size_of(DType::i32));
  for (const CompressedSum::Range& part :
       CompressedSum::within(parameter_ranges(layout), begin, begin + held.elements()))
    encode_blocks({.code = code.slice(0, coded_words(*codes_, part.begin), coded_words(*codes_, part.elements())),
                   .residual = {},
                   .x = held.slice(0, part.begin - begin, part.elements()),
                   .form = *codes_},
                  stream_);
  coded_[unit] = Coded{whole, code};
  return {code, code.slice(0, coded_words(*codes_, begin), coded_words(*codes_, held.elements()))};
}

void ZeroWeights::decode(int unit) {
  const auto [whole, code] = *coded_[unit];
  for (const CompressedSum::Range& part : parameter_ranges(*layouts_[unit])) {
    const ConstTensor words = code.slice(0, coded_words(*codes_, part.begin), coded_words(*codes_, part.elements()));
    decode_blocks({.y = whole.slice(0, part.begin, part.elements()),
                   .codes = {&words, 1},
                   .joins = balanced_joins(1),
                   .form = *codes_},
                  stream_);
  }
  coded_[unit].reset();
}

void ZeroWeights::release(int unit) { ready(unit); }

void ZeroWeights::ready(int unit) {
  fetches_.finish(unit);
  if (!pending_[unit]) return;
  Communicator::Started& call = *pending_[unit];
  if (call) call->wait();
  call.reset();  // of all units that it gathers
  pending_[unit].reset();
  if (coded_[unit]) decode(unit);
}

}  // namespace lockstep
