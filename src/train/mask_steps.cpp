#include "train/mask_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/integers.h"
#include "checkpoint/state.h"
#include "kernels/elementwise.h"
#include "tensor/transfer.h"

namespace lockstep {

MaskSteps::MaskSteps(RankSetup& setup, std::map<int, ZeroShard>& shards)
    : setup_(setup), shards_(shards), room_(setup.memory, accumulator_of(setup.model.dtype())) {}

Relayout MaskSteps::grow(std::int64_t steps) {
  const auto began = std::chrono::steady_clock::now();
  const Ledger& ledger = setup_.memory.ledger();
  Relayout done{
      .steps = steps, .share = setup_.options.sparsity.share_after(steps), .before = ledger.current(Tag::optimizer)};
  std::int64_t uneven = 0;  // bytes
  for (auto& [u, shard] : shards_) {
    if (!masks(u) || !shard.updates()) continue;
    const Survivors stay = survivors(u, shard, find(u, shard, steps), steps);
    shard.set_mask(stay, room_, setup_.memory, setup_.stream);
    const auto bytes = [](std::int64_t elements, const Tensor& state) {
      return round_up(elements * size_of(state.dtype()), kAlignment);
    };
    const auto add = [&](const Tensor& state) { uneven += bytes(stay.kept, state) - bytes(stay.evenly, state); };
    for (const auto& [name, state] : shard.optimizer_state()) add(state);
    if (shard.masters_apart()) add(shard.own_master());
  }
  done.after = ledger.current(Tag::optimizer);
  if (setup_.on_meta()) done.evenly = done.after - uneven;
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return done;
}

// The masters of the unit, whole, and the mask of them.
MaskWords MaskSteps::find(int unit, const ZeroShard& shard, std::int64_t steps) {
  const UnitLayout& layout = setup_.model.unit(unit).layout();
  const Shard part = setup_.groups.shard();
  const std::int64_t all = part.padded(layout.owned());
  const Tensor master = shard.own_master();
  const Buffer buffer = setup_.memory.allocate(all * size_of(master.dtype()), Tag::workspace, "sparsity");
  const Tensor whole = view(buffer, master.dtype(), {all});
  const Tensor own = whole.slice(0, part.begin(layout.owned()), part.elements(layout.owned()));
  constexpr double kMasked = std::numeric_limits<double>::quiet_NaN();
  if (shard.packed() && shard.masters_apart()) {
    shard.unpack_to(own, master, kMasked, setup_.stream);
  } else {
    cast({.y = own, .x = master}, setup_.stream);
    if (shard.packed()) keep({.dense = own, .mask = shard.mask(), .rest = kMasked}, setup_.stream);
  }
  if (part.count > 1) setup_.groups.sharers().all_gather(whole, own)->wait();
  const MagnitudeMask mask{
      .sparsity = setup_.options.sparsity, .steps = steps, .inputs_first = setup_.options.spec.in_out_weights};
  if (whole.device() != Device::cuda) return mask.find(layout, whole, setup_.mesh_hosts.tensor());
  // What is counted is counted on the host: a mask step comes rarely, and its counts are of the ranks' hosts.
  HostBuffer copy(whole.bytes(), setup_.stream);
  download(copy.as<std::byte>().data(), whole, setup_.stream);
  return mask.find(layout, ConstTensor(copy.as<std::byte>().data(), whole.dtype(), Device::cpu, {all}),
                   setup_.mesh_hosts.tensor());
}

Survivors MaskSteps::survivors(int unit, const ZeroShard& shard, const MaskWords& words, std::int64_t steps) const {
  const UnitLayout& layout = setup_.model.unit(unit).layout();
  const std::int64_t begin = setup_.groups.shard().begin(layout.owned()), part = shard.part_elements();
  const std::int64_t decayed = std::clamp<std::int64_t>(layout.decayed() - begin, 0, part);
  if (!setup_.on_meta()) return survivors_of(words, begin, part, decayed);
  const SparsitySpec& sparsity = setup_.options.sparsity;
  const bool half =
      sparsity.kind == SparsityKind::two_of_four && steps >= sparsity.end && !setup_.options.spec.in_out_weights;
  Survivors most;
  shard.each_piece([&](const ZeroShard::Piece& piece) {
    std::int64_t here = 0;
    for (const Run& run : piece.runs) here += run.elements();
    std::int64_t stay = here, evenly = here;
    if (is_masked(piece.tensor)) {
      const std::int64_t all = piece.tensor.elements(), kept = sparsity.kept(all, steps);
      stay = half ? here / 2 : std::min(here, kept);
      evenly = static_cast<std::int64_t>(
          std::llround(static_cast<double>(here) * static_cast<double>(kept) / static_cast<double>(all)));
    }
    most.kept += stay;
    most.evenly += evenly;
    if (piece.parameter.shape.size() >= 2) most.decayed += stay;
  });
  return most;
}

void MaskSteps::mask(const Gradients& gradients) {
  for (const auto& [u, shard] : shards_)
    if (shard.packed())
      keep({.dense = gradients.reduced(u).slice(0, 0, shard.part_elements()), .mask = shard.mask()}, setup_.stream);
}

namespace {
// Parts that are copied: the mask, and what is packed.
std::vector<std::pair<std::string, DType>> copied_parts(const ZeroShard& shard) {
  std::vector<std::pair<std::string, DType>> parts{{MaskSteps::kMaskPart, DType::bf16}};
  if (!shard.packed()) return parts;
  if (shard.masters_apart()) parts.emplace_back(kWeightPart, shard.own_master().dtype());
  for (const auto& [name, packed] : shard.optimizer_state()) parts.emplace_back(name, packed.dtype());
  return parts;
}
}  // namespace

std::int64_t MaskSteps::copied_bytes(int unit, const ZeroShard& shard) const {
  if (!masks(unit) || !shard.updates()) return 0;
  std::int64_t bytes = 0;
  for (const auto& [part, dtype] : copied_parts(shard)) bytes += shard.part_elements() * size_of(dtype);
  return bytes;
}

void MaskSteps::open(bool in_turns) {
  close();
  std::int64_t most = 0;
  for (const auto& [u, shard] : shards_) most = std::max(most, copied_bytes(u, shard));
  for (const auto& [u, shard] : shards_) {
    const std::int64_t bytes = copied_bytes(u, shard);
    if (bytes == 0) continue;
    Buffer& buffer = copies_[in_turns ? 0 : u];
    if (!buffer.memory()) buffer = setup_.memory.allocate(in_turns ? most : bytes, Tag::workspace, "checkpoint");
    std::int64_t at = 0;
    for (const auto& [part, dtype] : copied_parts(shard)) {
      whole_[{u, part}] = view(buffer, dtype, {shard.part_elements()}, at / size_of(dtype));
      at += shard.part_elements() * size_of(dtype);
    }
    if (!in_turns) fill_copies(u);
    for (const StoredParameter& parameter : setup_.model.unit(u).layout().parameters())
      for (const ParameterPiece& piece : parameter.pieces)
        if (in_turns) unit_of_[piece.name] = u;
  }
  open_ = true;
}

void MaskSteps::turn_to(const std::string& tensor) {
  const auto found = unit_of_.find(tensor);
  if (found == unit_of_.end() || found->second == turn_) return;
  turn_ = found->second;
  fill_copies(turn_);
}

void MaskSteps::fill_copies(int unit) {
  const ZeroShard& shard = shards_.at(unit);
  const Tensor mask = whole(unit, kMaskPart);
  fill({.y = mask, .value = 1}, setup_.stream);
  if (!shard.packed()) return;
  keep({.dense = mask, .mask = shard.mask()}, setup_.stream);
  if (shard.masters_apart()) shard.unpack_to(whole(unit, kWeightPart), shard.own_master(), 0, setup_.stream);
  for (const auto& [name, packed] : shard.optimizer_state())
    shard.unpack_to(whole(unit, name), packed.slice(0, 0, shard.kept()), 0, setup_.stream);
}

Tensor MaskSteps::whole(int unit, std::string_view part) const {
  const auto found = whole_.find({unit, std::string(part)});
  return found == whole_.end() ? Tensor{} : found->second;
}

void MaskSteps::take() {
  if (!open_) return;
  for (auto& [u, shard] : shards_) {
    const Tensor mask = whole(u, kMaskPart);
    if (!mask || setup_.on_meta()) continue;
    LOCKSTEP_CHECK(!shard.packed(), "the state of {} is packed already", setup_.model.unit(u).layout().name());
    const UnitLayout& layout = setup_.model.unit(u).layout();
    const std::vector<double> values = to_doubles(mask, setup_.stream);
    MaskWords words(static_cast<std::size_t>(mask_words(shard.part_elements())));
    bool all = true;
    shard.each_piece([&](const ZeroShard::Piece& piece) {
      for (const Run& run : piece.runs)
        for (std::int64_t row = 0; row < run.rows(); ++row)
          for (std::int64_t e = 0; e < run.row(); ++e) {
            const std::int64_t at = piece.offset + run.here.begin + row * run.here.pitch + e;
            const bool stays = values[static_cast<std::size_t>(at)] != 0;
            all = all && stays;
            if (stays) words[static_cast<std::size_t>(at / 64)] |= std::uint64_t{1} << (at % 64);
          }
    });
    if (all) continue;  // saved before the first mask step
    const std::int64_t part = shard.part_elements();
    const std::int64_t decayed =
        std::clamp<std::int64_t>(layout.decayed() - setup_.groups.shard().begin(layout.owned()), 0, part);
    shard.set_mask(survivors_of(words, 0, part, decayed), room_, setup_.memory, setup_.stream);
  }
  close();
}

void MaskSteps::close() {
  whole_.clear();
  copies_.clear();
  unit_of_.clear();
  turn_ = -1;
  open_ = false;
}

}  // namespace lockstep
