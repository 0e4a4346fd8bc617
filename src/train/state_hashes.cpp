#include "train/state_hashes.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "comm/control/socket.h"
#include "kernels/block_hash.h"
#include "kernels/host_store.h"
#include "spec/layout/updates.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

constexpr std::int64_t kHashBytes = sizeof(StateHash);
static_assert(kHashBytes == kBlockHashWords * 8);

std::uint64_t place_of(const std::string& text) { return checksum(std::as_bytes(std::span(text.data(), text.size()))); }

}  // namespace

StateHashes::StateHashes(RankSetup& setup, const RankState& state) : setup_(setup), state_(state) {
  for (const auto& [unit, shard] : state.shards()) add(state, unit, shard);
  std::ranges::stable_partition(entries_, &Entry::guarded);
  guarded_ = std::ranges::count_if(entries_, &Entry::guarded);
  all_ = setup.memory.allocate(std::max<std::int64_t>(1, std::ssize(entries_)) * kHashBytes, Tag::workspace);
  for (Buffer* const buffer : {&before_, &after_})
    *buffer = setup.memory.allocate(std::max<std::int64_t>(1, guarded_) * kHashBytes, Tag::workspace);
}

void StateHashes::add(HashedKind kind, const std::string& what, const std::string& place, bool guarded,
                      const Tensor& content, int updated_by) {
  if (content.elements() == 0) return;
  entries_.push_back({what, kind, place_of(place), guarded, content.reshape({content.elements()}), updated_by});
}

void StateHashes::add(const RankState& state, int u, const ZeroShard& shard) {
  const LayoutSpec& layout = setup_.options.layout;
  const UnitLayout& unit = setup_.model.unit(u).layout();
  const Shard part = setup_.groups.shard();
  const std::int64_t copies = state_copies(layout), tp_rank = setup_.mesh.tensor().rank();
  // Ranks whose groups would have other elements at the same place: other tp ranks, other shards.
  const std::string of_tp = fmt::format("{}/tp{}", unit.name(), tp_rank);
  const std::string of_shard = fmt::format("{}/shard{}of{}", of_tp, part.index, part.count);
  const Tensor weights = shard.flat_weight();
  const StorageTypes types = storage_types(setup_.options.precision);
  const bool has_all = !setup_.step.shape.gathers && !setup_.dp->serves(),
             masters_apart = types.compute != types.master;

  // Weights that an update overwrites by what another tensor or rank says are not what it started from.
  const bool last = all_update_all(layout) && !masters_apart && copies > 1 && shard.updates();
  const bool published = std::ranges::any_of(setup_.step.actions, [&](const Action& action) {
    return action.kind == ActionKind::publish && action.unit == u;
  });
  add(HashedKind::weights, unit.name() + ": weights", "weights/" + (has_all ? of_tp : of_shard), !last, weights,
      shard.updates() && !published ? u : -1);
  add(HashedKind::weights, unit.name() + ": frozen weights", "frozen/" + (has_all ? of_tp : of_shard), true,
      shard.flat_frozen());
  if (setup_.step.shape.tie_is_sent() && u == setup_.step.shape.tie_owner)
    add(HashedKind::tied, "the tied weight", "tied/" + of_shard, false, state.tied_weight());
  if (!shard.updates()) return;

  if (published && !last && !masters_apart)  // else publishing makes them from the masters
    add(HashedKind::optimizer, unit.name() + ": own weights", "own/" + of_shard, true, shard.own_weight(), u);
  std::vector<std::pair<std::string, Tensor>> own;
  if (masters_apart) own.emplace_back("master weights", shard.own_master());
  for (const auto& [name, flat] : shard.optimizer_state()) own.emplace_back(std::string(name), flat);
  for (const auto& [name, flat] : own)
    add(HashedKind::optimizer, unit.name() + ": " + name, name + "/" + of_shard, copies == 1, flat, u);

  // What tp ranks hold alike, where its parts are whole.
  if (layout.tp == 1 || part.count > 1) return;
  own.emplace_back("weights", weights);
  shard.each_piece([&](const ZeroShard::Piece& piece) {
    std::int64_t elements = 0;
    for (const Run& run : piece.runs) elements += run.elements();
    const bool whole = elements == piece.tensor.elements();
    if (!whole && piece.tensor.partial_over == 1) return;
    for (const Run& run : piece.runs) {
      if (run.rows() != 1) continue;
      const std::string place = fmt::format("{}/{}+{}", piece.tensor.name, run.there.begin, run.elements());
      for (const auto& [name, flat] : own)
        add(whole ? HashedKind::shared_by_all : HashedKind::shared_by_some, piece.tensor.name + ": " + name,
            name + "/" + place, false, piece.of(flat).slice(0, run.here.begin, run.elements()));
    }
  });
}

void StateHashes::hash(std::int64_t index, Buffer& to) {
  const Tensor all = view(to, DType::i64, {to.bytes() / 8});
  block_hash({.hash = all.slice(0, index * kBlockHashWords, kBlockHashWords),
              .x = entries_[static_cast<std::size_t>(index)].content},
             setup_.stream);
}

void StateHashes::hash_updated_by(int unit, Buffer& to) {
  for (std::int64_t i = 0; i < guarded_; ++i)
    if (entries_[static_cast<std::size_t>(i)].updated_by == unit) hash(i, to);
}

void StateHashes::before_updates() { hash_updated_by(-1, before_); }

void StateHashes::fetch(std::span<std::byte> before, std::span<std::byte> after) {
  if (guarded_ == 0) return;
  hash_updated_by(-1, after_);
  for (const auto& [to, from] : {std::pair(before, &before_), std::pair(after, &after_)}) {
    LOCKSTEP_CHECK(std::ssize(to) == guarded_ * kHashBytes, "{} bytes for {} hashes", to.size(), guarded_);
    host_store({.to = to.data(), .from = view(*from, DType::i64, {guarded_ * kBlockHashWords})}, setup_.stream);
  }
}

std::vector<StateHash> StateHashes::hash_all() {
  std::vector<StateHash> all(entries_.size());
  if (all.empty()) return all;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) hash(i, all_);
  download(all.data(), view(all_, DType::i64, {std::ssize(all) * kBlockHashWords}), setup_.stream);
  return all;
}

void StateHashes::require_unchanged(std::span<const StateHash> now) const {
  if (remembered_.empty()) return;
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < remembered_.size(); ++i)
    if (remembered_[i] != now[i]) changed.push_back(entries_[i].name);
  if (changed.empty()) return;
  std::string what = changed.front();
  if (changed.size() > 1) what += fmt::format(" and {} more", changed.size() - 1);
  throw EnvironmentError(
      fmt::format("rank {} (host {}): its state changed between two updates, after that of step {}: tensor group {}; "
                  "its memory or processor may be failing",
                  setup_.rank(), control::host_name(), state_.batches(), what));
}

}  // namespace lockstep
