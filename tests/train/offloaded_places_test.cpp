// Where activations are that leave the device and come back: a slow model of a step, byte by byte, that knows whose
// bytes are where.
//
// It plays the list of actions. A phase puts its slots into their places, a move takes what it finds in one place to
// another, and everything that reads looks whether it finds its own. A move may copy at any time between its two
// moments, so what it copies must stay where it is that long, and its target may belong to nobody else.
#include <gtest/gtest.h>

#include <map>

#include "comm/meta/communicator.h"
#include "spec/layout/layout_toml.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"
#include "train/rank_setup.h"

namespace lockstep::tests {
namespace {

class PlayedPlaces {
 public:
  PlayedPlaces(const Replica::Options& o, int rank)
      : nothing_(make_memory(Device::meta, ledger_)),
        memory_(make_memory(Device::cpu, ledger_)),
        ranks_(rank, static_cast<int>(o.layout.ranks())),
        with_{ranks_, ranks_},
        setup_(o, &with_, *nothing_, stream_, nothing_.get()),
        slots_(setup_.model.slots()),
        places_(slots_, setup_.step.actions, setup_.step.evaluation, setup_.step.shape, *memory_) {}

  void play() {
    const std::vector<Action>& actions = setup_.step.actions;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      // What is done now has been copied at any time before; what begins may be copied at once.
      for (const StepActivations::Move& m : places_.moves()) {
        if (m.end == i) end(m);
      }
      for (const StepActivations::Move& m : places_.moves()) {
        if (m.begin == i) begin(m);
      }
      run(actions[i]);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "at action " << i << ", " << to_string(actions[i]);
        return;
      }
    }
    EXPECT_TRUE(moving_.empty());
  }
  std::size_t moves() const { return places_.moves().size(); }
  std::size_t compared = 0;

 private:
  using Owner = std::pair<Slot, int>;  // in its first life; micro-batch
  static constexpr std::int64_t kGrain = kAlignment;

  void own(std::map<std::int64_t, Owner>& where, std::int64_t first, std::int64_t bytes, const Owner& owner) {
    for (std::int64_t at = first; at < first + bytes; at += kGrain) where[at] = owner;
  }
  void expect_owner(std::map<std::int64_t, Owner>& where, std::int64_t first, std::int64_t bytes, const Owner& owner) {
    ++compared;
    for (std::int64_t at = first; at < first + bytes; at += kGrain)
      ASSERT_TRUE(where.contains(at) && where[at] == owner)
          << slots_.all()[static_cast<std::size_t>(owner.first)].name << " of micro-batch " << owner.second
          << " is not where it should be";
  }
  static std::int64_t address(const Tensor& t) {
    return static_cast<const char*>(t.raw()) - static_cast<char*>(nullptr);
  }

  void begin(const StepActivations::Move& m) {
    const std::int64_t bytes = m.here.bytes();
    auto& from = m.out ? device_ : elsewhere_;
    const std::int64_t source = m.out ? address(m.here) : m.elsewhere;
    ASSERT_TRUE(from.contains(source)) << "a move of nothing";
    const Owner owner = from[source];
    moving_[&m] = owner;
    expect_owner(from, source, bytes, owner);
    own(m.out ? elsewhere_ : device_, m.out ? m.elsewhere : address(m.here), bytes, owner);
  }
  void end(const StepActivations::Move& m) {
    ASSERT_TRUE(moving_.contains(&m));
    const Owner owner = moving_[&m];
    expect_owner(device_, address(m.here), m.here.bytes(), owner);
    expect_owner(elsewhere_, m.elsewhere, m.here.bytes(), owner);
    moving_.erase(&m);
  }

  Tensor at(Slot slot, int micro, bool again) const {
    const Activations& all = places_.of(micro);
    return all[again ? all.again(slot) : slot];
  }
  void put(Slot slot, int micro) {
    const Tensor t = at(slot, micro, false);
    if (t.elements() > 0) own(device_, address(t), t.bytes(), {slot, micro});
  }
  void look(Slot slot, int micro, bool again) {
    const Tensor t = at(slot, micro, again);
    if (t.elements() > 0) expect_owner(device_, address(t), t.bytes(), {slot, micro});
  }

  void run(const Action& a) {
    const Between* between = a.unit >= 0 ? &setup_.model.between(a.unit) : nullptr;
    switch (a.kind) {
      case ActionKind::forward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        return run_phase_halves({a.unit, static_cast<Phase>(a.kind)}, a.micro);
      case ActionKind::receive_input:
        return put(between->x, a.micro);
      case ActionKind::receive_output_gradient:
        return put(between->dy, a.micro);
      case ActionKind::send_output:
        return look(between->y, a.micro, false);
      case ActionKind::send_input_gradient:
        return look(between->dx, a.micro, false);
      default:
        return;
    }
  }
  void run_phase_halves(const Moment& now, int micro) {
    const std::vector<SlotSpec>& all = slots_.all();
    for (const Half half : {Half::first, Half::second}) {
      for (std::size_t s = 0; s < all.size(); ++s) {
        const auto slot = static_cast<Slot>(s);
        if (all[s].offload == SlotOffload::comes_back) continue;  // nobody writes it but the move
        if (all[s].born == now && all[s].born_half == half) put(slot, micro);
      }
      for (std::size_t s = 0; s < all.size(); ++s) {
        const auto slot = static_cast<Slot>(s);
        const SlotSpec& spec = all[s];
        if (spec.offload == SlotOffload::comes_back) continue;
        const bool goes = spec.offload == SlotOffload::goes;
        if (goes && spec.last.unit == now.unit && now.phase == Phase::forward && half == Half::second)
          look(slot, micro, false);
        if (goes && spec.last.unit == now.unit && now.phase == Phase::input && half == Half::first)
          look(slot, micro, true);
        if (spec.last == now && spec.last_half == half) look(slot, micro, goes);
      }
    }
  }

  Ledger ledger_;
  std::unique_ptr<Memory> nothing_, memory_;
  meta::Stream stream_;
  meta::Communicator ranks_;
  RankSetup::Ranks with_;
  RankSetup setup_;
  const Slots& slots_;
  StepActivations places_;
  std::map<std::int64_t, Owner> device_, elsewhere_;  // by grain: whose bytes they are
  std::map<const StepActivations::Move*, Owner> moving_;
};

TEST(OffloadedPlaces, HoldEachSlotWhenItIsReadInEverySchedule) {
  const std::vector<NamedSpec> specs = cut_specs();
  ModelSpec spec = std::ranges::find_if(specs, [](const NamedSpec& s) { return s.spec.kv_heads % 2 == 0; })->spec;
  spec.layers = 8;
  spec.dropout = 0.1;
  for (const char* text :
       {"micro=1", "micro=3", "pp=2,micro=4,schedule=afab", "pp=2,micro=4", "pp=4,micro=6",
        "pp=2,micro=4,schedule=interleaved", "pp=2,micro=6,schedule=zb-h1", "pp=2,micro=6,schedule=zb-v",
        "pp=4,micro=8,schedule=zb-v", "dp=2,zero=3,micro=2", "tp=2,micro=2", "cp=2,cp_kind=ulysses,micro=2"})
    for (const MemorySpec& memory :
         {MemorySpec{}, MemorySpec{.recompute = Recompute::projections}, MemorySpec{.recompute = Recompute::full},
          MemorySpec{.recompute = Recompute::full, .recompute_every = 2}})
      for (const auto& [where, blocks] :
           {std::pair<Offload, int>{Offload::none, 0}, {Offload::host, 0}, {Offload::host, 2}, {Offload::disk, 0}}) {
        Replica::Options o = learning_options(spec, parse_layout(text), Precision::fp32);
        o.how.memory = memory;
        o.how.memory.offload_activations = where;
        o.how.memory.offload_blocks = blocks;
        for (int rank = 0; rank < o.layout.ranks(); ++rank) {
          PlayedPlaces played(o, rank);
          played.play();
          ASSERT_FALSE(::testing::Test::HasFailure())
              << text << ", rank " << rank << ", recompute " << name_of(memory.recompute) << ", every "
              << memory.recompute_every << ", " << name_of(where) << ", " << blocks << " blocks";
          EXPECT_EQ(played.moves() > 0, where != Offload::none) << text << ", rank " << rank;
          EXPECT_GT(played.compared, 0U);
        }
      }
}

}  // namespace
}  // namespace lockstep::tests
