// Who holds what: the bytes that each stage of ZeRO says it holds are the ones it holds.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "parallel/gradients.h"
#include "parallel/zero_shards.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

struct HeldState {
  std::int64_t parameter, gathered, gradient, optimizer, communication;
  std::int64_t state() const { return parameter + gradient + optimizer; }
};

HeldState held_in(const Ledger& ledger) {
  return {ledger.current(Tag::parameter), ledger.current(Tag::gathered), ledger.current(Tag::gradient),
          ledger.current(Tag::optimizer), ledger.current(Tag::communication)};
}

// Model state of one unit of exactly so many elements, as rank 0 of `ranks` holds it.
HeldState held_of_one_unit(std::int64_t elements, const LayoutSpec& layout, const PrecisionSpec& precision) {
  UnitLayout unit("all");
  unit.add({.shape = {elements}, .pieces = {{"all", {elements}}}});
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  meta::Stream stream;
  meta::Communicator ranks(0, static_cast<int>(layout.dp));
  ZeroGroups groups(ranks, layout);
  const std::vector<Action> actions = serial_step({.units = 1, .reduces_each = layout.passes_on()});
  const StorageTypes types = storage_types(precision);
  const ZeroShard storage(
      unit, {.types = types, .optimizer = {}, .shard = groups.shard(), .whole_weights = !layout.cuts_weights()},
      *memory, stream);
  const Gradients::Options options{.layouts = {&unit}, .actions = actions, .dtype = types.gradient};
  const auto gradients = make_gradients(options, layout, groups, *memory, stream);
  return held_in(ledger);
}

PrecisionSpec bf16(StateType gradients) {
  PrecisionSpec precision = Precision::bf16;
  precision.gradients = gradients;
  return precision;
}

TEST(ZeroMemory, ModelStateIsWhatTheFormulasSay) {
  for (const std::int64_t n : {1, 2, 4, 64, 1024}) {
    const std::int64_t psi = 256 * 1024 * 9;
    const auto state = [&](int stage, StateType gradients) {
      return held_of_one_unit(psi, {.dp = n, .zero = stage}, bf16(gradients)).state();
    };
    EXPECT_EQ(state(0, StateType::full), 18 * psi) << n;
    EXPECT_EQ(state(1, StateType::full), 6 * psi + 12 * psi / n) << n;
    EXPECT_EQ(state(2, StateType::full), 2 * psi + 16 * psi / n) << n;
    EXPECT_EQ(state(3, StateType::full), 18 * psi / n) << n;
    EXPECT_EQ(state(0, StateType::bf16), 16 * psi) << n;
    EXPECT_EQ(state(1, StateType::bf16), 4 * psi + 12 * psi / n) << n;
    EXPECT_EQ(state(2, StateType::bf16), 2 * psi + 14 * psi / n) << n;
    EXPECT_EQ(state(3, StateType::bf16), 16 * psi / n) << n;
  }
}

// Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", table 1: gigabytes a
// device, 16-bit weights and gradients, for stages 1, 2 and 3 of 7.5, 128 and 1000 billion parameters.
struct Row {
  std::int64_t ranks;
  const char* cells[9];
};
constexpr Row kPaper[] = {
    {1, {"120", "120", "120", "2048", "2048", "2048", "16000", "16000", "16000"}},
    {4, {"52.5", "41.3", "30", "896", "704", "512", "7000", "5500", "4000"}},
    {16, {"35.6", "21.6", "7.5", "608", "368", "128", "4750", "2875", "1000"}},
    {64, {"31.4", "16.6", "1.88", "536", "284", "32", "4187", "2218", "250"}},
    {256, {"30.4", "15.4", "0.47", "518", "263", "8", "4046", "2054", "62.5"}},
    {1024, {"30.1", "15.1", "0.12", "513", "257", "2", "4011", "2013", "15.6"}},
};

TEST(ZeroMemory, ThePapersTableComesOutCellByCell) {
  const std::int64_t sizes[] = {7'500'000'000, 128'000'000'000, 1'000'000'000'000};
  int cells = 0;
  for (const Row& row : kPaper)
    for (int c = 0; c < 9; ++c, ++cells) {
      const HeldState held =
          held_of_one_unit(sizes[c / 3], {.dp = row.ranks, .zero = 1 + c % 3}, bf16(StateType::bf16));
      const std::string printed = row.cells[c];
      const std::size_t dot = printed.find('.');
      const double digit = dot == std::string::npos ? 1 : std::pow(10, -static_cast<double>(printed.size() - dot - 1));
      EXPECT_LE(std::abs(static_cast<double>(held.state()) / 1e9 - std::stod(printed)), digit)
          << sizes[c / 3] << " over " << row.ranks << ", stage " << 1 + c % 3;
    }
  EXPECT_EQ(cells, 54);
}

// The bytes that are held whenever this rank begins a message: in the middle of forward and backward.
class Watching final : public Communicator {
 public:
  using Look = std::function<void(CommOp)>;
  Watching(std::unique_ptr<Communicator> inner, Look look)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
        inner_(std::move(inner)),
        look_(std::move(look)) {}
  Started start(const Message& message) override {
    look_(message.op);
    return inner_->start(message);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return std::make_unique<Watching>(inner_->split(place, name), look_);
  }

 private:
  std::unique_ptr<Communicator> inner_;
  Look look_;
};

// What a unit needs whole to compute: its own weights, and of a tied head the table's.
std::vector<std::int64_t> unit_elements(const Model& model, std::int64_t ranks, bool with_tie) {
  const Shard cut{.index = 0, .count = ranks};
  std::vector<std::int64_t> all;
  for (int u = 0; u < model.units(); ++u) all.push_back(cut.padded(model.unit(u).layout().owned()));
  if (with_tie && model.tie()) all[model.tie()->borrower_unit] += all[model.tie()->owner_unit];
  return all;
}

std::int64_t two_largest(std::vector<std::int64_t> sizes) {
  std::ranges::sort(sizes, std::greater());
  return sizes[0] + sizes[1];
}

TEST(ZeroMemory, InTheMiddleOfBackwardAPartAndTwoUnitsAreHeld) {
  ModelSpec deep = tiny_specs()[0].spec;
  deep.layers = 7;
  ModelSpec tied = tiny_specs()[1].spec;
  tied.layers = 5;
  for (const ModelSpec& spec : {deep, tied})
    for (const int ranks : {3, 8})
      for (const int stage : {2, 3}) {
        const LayoutSpec layout{.dp = ranks, .micro = 3, .zero = stage};
        const Replica::Options o = learning_options(spec, layout, Precision::fp32);
        run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
          CpuDevice cpu;
          std::map<CommOp, std::vector<HeldState>> seen;
          Watching watching(std::move(group), [&](CommOp op) { seen[op].push_back(held_in(cpu.memory().ledger())); });
          Replica replica(o, {watching, watching}, cpu.memory(), cpu.stream());
          replica.init_weights();
          seen.clear();
          const Share share = replica.given();
          const TokenBatch batch = random_batch(o, 1);
          const auto part = [&](const std::vector<std::int32_t>& whole) {
            return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                            static_cast<std::size_t>(share.count * o.T));
          };
          replica.step(part(batch.tokens), part(batch.targets));
          const Model& model = replica.model();
          std::int64_t parts = 0, whole = 0;
          const Shard cut{.index = 0, .count = ranks};
          for (int u = 0; u < model.units(); ++u) {
            parts += cut.elements(model.unit(u).layout().owned());
            whole += cut.padded(model.unit(u).layout().owned());
          }
          const auto tie = model.tie();
          const std::int64_t tied_elements =
              tie ? model.unit(tie->borrower_unit).layout().elements() - model.unit(tie->borrower_unit).layout().owned()
                  : 0;
          // A tied table's gradient is summed by itself: a part of it, as large as any rank has.
          std::int64_t tied_part = 0;
          if (tie) {
            const UnitLayout& owner = model.unit(tie->owner_unit).layout();
            const std::int64_t begin = owner.offset(tie->owner_parameter), each = cut.elements(owner.owned()),
                               end = begin + owner.parameters()[tie->owner_parameter].elements();
            for (std::int64_t from = 0; from < ranks * each; from += each)
              tied_part = std::max(tied_part, std::clamp(from + each, begin, end) - std::clamp(from, begin, end));
          }
          std::vector<std::int64_t> gradients = unit_elements(model, ranks, false);
          if (tie) gradients[tie->borrower_unit] += tied_elements;
          ASSERT_GE(std::ssize(seen[CommOp::reduce_scatter]), 3 * model.units());
          for (const HeldState& held : seen[CommOp::reduce_scatter]) {
            EXPECT_EQ(held.gradient, round_up(4 * parts, kAlignment) + round_up(4 * tied_part, kAlignment));
            EXPECT_LE(held.communication, 4 * two_largest(gradients));
            EXPECT_LT(held.gradient + held.communication, 4 * whole) << "it is to be less than all of them";
            EXPECT_EQ(held.parameter, 4 * (stage == 3 ? parts : whole));
            EXPECT_LE(held.gathered, stage == 3 ? 4 * two_largest(unit_elements(model, ranks, true)) : 0);
          }
          if (stage == 3) {
            EXPECT_LT(seen[CommOp::all_gather].back().gathered, 4 * whole);
          }
        });
      }
}

TEST(ZeroMemory, AsManyUnitsStayGatheredAsThereIsRoomFor) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.layers = 6;
  spec.width = spec.heads * spec.head_width * 4;  // blocks of some size
  spec.head_width *= 4;
  spec.ffn_width = 40000;
  std::int64_t before = -1;
  for (const std::int64_t room : {0, 5, 20, 40, 1000}) {
    Replica::Options o = learning_options(spec, {.dp = 2, .zero = 3}, Precision::fp32);
    o.how.memory.gathered = room;
    MetaDevice meta;
    meta::Communicator ranks(0, 2);
    const Replica replica(o, {ranks, ranks}, meta.memory(), meta.stream());
    const std::int64_t gathered = meta.memory().ledger().current(Tag::gathered);
    const std::int64_t block = Shard{.index = 0, .count = 2}.padded(replica.model().unit(3).layout().owned()) * 4;
    EXPECT_LE(gathered, 2 * block + (room << 20)) << room;
    EXPECT_GE(gathered, before);
    before = gathered;
    if (room == 1000) {
      EXPECT_GE(gathered, 6 * block);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
