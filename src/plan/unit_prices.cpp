#include "plan/unit_prices.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/plan.h"
#include "spec/pipeline/clock.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::int64_t kProbedBlocks = 2;

PricedPhase priced(const PhaseScript& phase, const WorldScript& script, const std::vector<MessagePrice>& prices,
                   double slowdown) {
  PricedPhase found{.time = time_of(phase, prices, script.messages, slowdown), .matmul_flops = phase.work.matmul_flops};
  for (const StagePiece& piece : phase.pieces) {
    if (piece.kind != StagePiece::Kind::start) continue;
    const StageMessage& m = script.messages[static_cast<std::size_t>(piece.index)];
    if (m.op != CommOp::recv && !m.number) found.sent[static_cast<std::size_t>(m.group.axis)] += m.sent;
  }
  return found;
}

}  // namespace

UnitPrices::UnitPrices(const RunSpec& run, const MachineSpec& machine, const RunData& data)
    : run_(run), machine_(machine), data_(data), prices_(machine) {}

const PricedUnits& UnitPrices::of(const LayoutSpec& layout, Recompute recompute, std::int64_t samples) {
  const Key key{.tp = layout.tp,
                .cp = layout.cp,
                .samples = samples,
                .pieces = layout.tp_chunks,
                .kind = static_cast<int>(layout.cp_kind.factors(layout.cp).ring),
                .order = static_cast<int>(layout.cp_order),
                .sp = static_cast<int>(layout.sp),
                .recompute = static_cast<int>(recompute)};
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
  }
  PricedUnits found = find(layout, recompute, samples);
  const std::lock_guard lock(mutex_);
  return known_.try_emplace(key, std::move(found)).first->second;
}

double UnitPrices::stretch(const LayoutSpec& layout, double forward, double input, double weight) {
  if (layout.pp == 1) return 1;
  // Shares of the three are told apart by twentieths. Beyond a few rounds a schedule repeats itself.
  const double all = forward + input + weight;
  const auto share = [&](double part) { return std::llround(20 * part / all); };
  const std::int64_t least = 4 * layout.pp, timed_micro = std::min(layout.micro, least);
  const std::array<std::int64_t, 6> key{
      static_cast<std::int64_t>(layout.schedule), layout.pp, layout.chunks, timed_micro, share(forward), share(weight)};
  const auto micro = static_cast<double>(layout.micro);
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = stretches_.find(key); at != stretches_.end()) return 1 + at->second / micro;
  }
  LayoutSpec few = layout;
  few.micro = timed_micro;
  const auto chunks = static_cast<double>(layout.chunks);
  const double f = static_cast<double>(key[4]) / 20, w = static_cast<double>(key[5]) / 20;
  const ChunkTimes times{.forward = f / chunks, .input = (1 - f - w) / chunks, .weight = w / chunks};
  double idle = 1e6;  // of a schedule that there is not
  try {
    idle = timed(schedule_of(few), [&](int) { return times; }).makespan() - static_cast<double>(timed_micro);
  } catch (const UserError&) {
  }
  const std::lock_guard lock(mutex_);
  return 1 + stretches_.try_emplace(key, idle).first->second / micro;
}

PricedUnits UnitPrices::find(const LayoutSpec& layout, Recompute recompute, std::int64_t samples) const {
  RunSpec probe = run_;
  probe.model.layers = kProbedBlocks;
  probe.layout = {};
  probe.layout.cp = layout.cp;
  probe.layout.cp_kind = layout.cp_kind;
  probe.layout.cp_order = layout.cp_order;
  probe.layout.tp = layout.tp;
  probe.layout.sp = layout.sp;
  probe.layout.tp_chunks = layout.tp_chunks;
  probe.layout.overlap = run_.layout.overlap;
  probe.layout.reduce = run_.layout.reduce;
  probe.layout.micro = 2;
  probe.train.global_batch = 2 * samples;
  probe.train.save_last = false;
  probe.train.save_every = probe.train.eval_every = 0;
  probe.memory = {.recompute = recompute};
  validate(probe, [](std::string_view, std::string_view) { return std::string(); });

  const WorldScript script = world_script(probe, machine_, prices_, data_);
  std::vector<MessagePrice> prices;
  for (const StageMessage& m : script.messages) prices.push_back(price_of(m, machine_));
  const StageScript& stage = script.stages.front();
  PricedUnits units;
  const int last = stage.step.shape.last();
  for (const StagePiece& piece : stage.pieces) {
    if (piece.kind != StagePiece::Kind::phase) continue;
    const Action& action = stage.step.actions[static_cast<std::size_t>(piece.action)];
    PricedUnit& unit = action.unit == 0 ? units.embedding : action.unit == last ? units.head : units.block;
    (action.micro == 0 ? unit.first : unit.later)[static_cast<std::size_t>(action.kind)] =
        priced(script.phases[static_cast<std::size_t>(piece.index)], script, prices, machine_.overlap_slowdown);
  }

  // Memory: with every micro-batch in flight, one block and one micro-batch more or less.
  const auto activations = [&](std::int64_t layers, std::int64_t micro) {
    RunSpec one = probe;
    one.model.layers = layers;
    one.layout.micro = micro;
    one.train.global_batch = micro * samples;
    return plan_run(one, 0, &data_);
  };
  const Plan two = activations(kProbedBlocks, 1), three = activations(kProbedBlocks + 1, 1);
  units.block.kept = three.peak_of(Tag::activation) - two.peak_of(Tag::activation);
  units.working = two.peak_of(Tag::activation) - kProbedBlocks * units.block.kept;
  units.block.elements = three.layer_part - two.layer_part;
  const std::int64_t ends = two.layer_part - kProbedBlocks * units.block.elements;
  for (const auto& [key, count] : two.rows) {
    if (key.first != Tag::parameter) continue;
    const std::int64_t elements = count.current / size_of(storage_types(probe.precision).compute);
    if (key.second == "embedding") units.embedding.elements = elements;
    if (key.second == "head") units.head.elements = elements;
  }
  if (units.embedding.elements + units.head.elements != ends) units.embedding.elements = ends - units.head.elements;
  units.beside = two.peak_of(Tag::workspace) + two.peak_of(Tag::data) + two.outside;
  const std::int64_t tokens = samples * probe.data.seq / layout.cp / (layout.sp == Switch::on ? layout.tp : 1);
  units.handed_on = tokens * probe.model.width * size_of(storage_types(probe.precision).compute);
  return units;
}

}  // namespace lockstep
