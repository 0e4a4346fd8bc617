#include "plan/composed_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::size_t kForward = 0, kInput = 1, kWeight = 2;

// Seconds of all micro-batches' phases but the first, each.
struct StageSeconds {
  double forward = 0, input = 0, weight = 0;
  double all() const { return forward + input + weight; }
};

StageSeconds seconds_of(const PricedUnits& units, const StageUnits& stage) {
  StageSeconds sum;
  const auto add = [&](const PricedUnit& unit, double times) {
    sum.forward += times * unit.seconds(kForward);
    sum.input += times * unit.seconds(kInput);
    sum.weight += times * unit.seconds(kWeight);
  };
  add(units.block, static_cast<double>(stage.blocks));
  if (stage.embedding) add(units.embedding, 1);
  if (stage.head) add(units.head, 1);
  return sum;
}

GroupSpan replicas_span(const LayoutSpec& l, const MachineSpec& machine) {
  std::vector<int> members;
  for (std::int64_t d = 0; d < l.dp; ++d)
    for (std::int64_t c = 0; c < l.cp; ++c) members.push_back(static_cast<int>((d * l.pp * l.cp + c) * l.tp));
  return span_of(members, 0, MeshAxis::dp, machine);
}

Algorithm algorithm_of_run(ReduceKind kind) { return static_cast<Algorithm>(kind); }

// Seconds of a collective of the replicas over that many bytes.
double collective(CommOp op, double bytes, const GroupSpan& group, const RunSpec& run, const MachineSpec& machine) {
  if (group.ranks == 1) return 0;
  const double n = group.ranks, once = bytes * (n - 1) / n;
  const bool sums = reduces(op) && run.layout.reduce == ReduceKind::canonical;
  return price_of({.op = op,
                   .algorithm = algorithm_of_run(run.layout.reduce),
                   .group = group,
                   .sent = static_cast<std::int64_t>(op == CommOp::all_reduce ? 2 * once : once),
                   .summed = sums ? static_cast<std::int64_t>(bytes * (1 + 1 / n)) : 0},
                  machine)
      .seconds();
}

}  // namespace

RunSpec with_choice(const RunSpec& run, const LayoutChoice& choice) {
  RunSpec spec = run;
  spec.layout = choice.layout;
  spec.memory.recompute = choice.recompute;
  spec.memory.recompute_blocks = 0;
  spec.memory.recompute_every = 1;
  spec.memory.recompute_stages = {};
  if (choice.offload) spec.memory.offload_optimizer = Offload::host;
  return spec;
}

std::string to_text(const LayoutChoice& choice) {
  std::string text = to_text(choice.layout);
  if (choice.recompute != Recompute::none) text += fmt::format(" memory.recompute={}", name_of(choice.recompute));
  if (choice.offload) text += " memory.offload_optimizer=host";
  return text;
}

std::vector<std::int64_t> blocks_by_chunk(std::int64_t layers, std::int64_t chunks, double block, double embedding,
                                          double head) {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(chunks), layers / chunks);
  for (std::int64_t i = 0; i < layers % chunks; ++i) ++blocks[static_cast<std::size_t>(i)];
  if (chunks == 1) return blocks;
  const auto cost = [&](std::size_t chunk) {
    return static_cast<double>(blocks[chunk]) * block + (chunk == 0 ? embedding : 0) +
           (chunk + 1 == blocks.size() ? head : 0);
  };
  // From the dearest to the cheapest while that makes the dearest cheaper.
  for (std::int64_t moves = 0; moves < layers; ++moves) {
    std::size_t most = 0, least = 0;
    for (std::size_t c = 1; c < blocks.size(); ++c) {
      if (cost(c) > cost(most)) most = c;
      if (cost(c) < cost(least)) least = c;
    }
    if (blocks[most] == 0 || cost(least) + block >= cost(most) * (1 - 1e-9)) break;
    --blocks[most];
    ++blocks[least];
  }
  return blocks;
}

namespace {

// Interleaved chunks are dealt out in rounds, those of a V there and back.
std::int64_t stage_of_chunk(const LayoutSpec& l, std::int64_t chunk) {
  const std::int64_t round = chunk / l.pp, place = chunk % l.pp;
  return l.schedule == ScheduleKind::zb_v && round % 2 == 1 ? l.pp - 1 - place : place;
}

}  // namespace

std::int64_t sends_of(const LayoutSpec& l, std::int64_t stage) {
  std::int64_t sends = 0;
  for (std::int64_t c = 0; c + 1 < l.pp * l.chunks; ++c) {
    const std::int64_t from = stage_of_chunk(l, c), to = stage_of_chunk(l, c + 1);
    if (from != to) sends += (from == stage) + (to == stage);
  }
  return sends;
}

ComposedTotals totals_of(const PricedUnits& units, const StageUnits& stage, const LayoutSpec& layout) {
  ComposedTotals totals;
  const std::int64_t later = layout.micro - 1;
  const auto add = [&](const PricedUnit& unit, std::int64_t times) {
    for (std::size_t phase = 0; phase < 3; ++phase) {
      totals.matmul_flops += times * (unit.first[phase].matmul_flops + later * unit.later[phase].matmul_flops);
      const auto cp = static_cast<std::size_t>(MeshAxis::cp);
      totals.sent_cp += times * (unit.first[phase].sent[cp] + later * unit.later[phase].sent[cp]);
    }
    totals.elements += times * unit.elements;
  };
  add(units.block, stage.blocks);
  if (stage.embedding) add(units.embedding, 1);
  if (stage.head) add(units.head, 1);
  totals.sent_pp = stage.sends * layout.micro * units.handed_on;
  return totals;
}

ComposedStep compose(const RunSpec& run, const LayoutChoice& choice, UnitPrices& prices) {
  const LayoutSpec& l = choice.layout;
  const MachineSpec& machine = prices.machine();
  const std::int64_t samples = run.train.global_batch / (l.dp * l.micro);
  const PricedUnits& units = prices.of(l, choice.recompute, samples);
  const auto block = units.block.seconds(0) + units.block.seconds(1) + units.block.seconds(2);
  const auto ends = [](const PricedUnit& u) { return u.seconds(0) + u.seconds(1) + u.seconds(2); };
  const std::int64_t chunks = l.pp * l.chunks;
  const std::vector<std::int64_t> blocks =
      blocks_by_chunk(run.model.layers, chunks, block, ends(units.embedding), ends(units.head));

  std::vector<StageUnits> stages(static_cast<std::size_t>(l.pp));
  std::int64_t most_of_chunk = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    StageUnits& stage = stages[static_cast<std::size_t>(stage_of_chunk(l, c))];
    stage.blocks += blocks[static_cast<std::size_t>(c)];
    stage.embedding |= c == 0;
    stage.head |= c + 1 == chunks;
    most_of_chunk = std::max(most_of_chunk, blocks[static_cast<std::size_t>(c)]);
  }
  StageSeconds slowest;
  double all = 0;
  for (const StageUnits& stage : stages) {
    const StageSeconds seconds = seconds_of(units, stage);
    all += seconds.all();
    if (seconds.all() > slowest.all()) slowest = seconds;
  }
  const auto m = static_cast<double>(l.micro), p = static_cast<double>(l.pp), v = static_cast<double>(l.chunks);
  const double mean = all / p;
  const GroupSpan group = replicas_span(l, machine);
  double hops = 0;
  if (l.pp > 1) {
    const int far = static_cast<int>(l.cp * l.tp);
    hops = price_of({.op = CommOp::send, .group = span_of({0, far}, 0, MeshAxis::pp, machine), .sent = units.handed_on},
                    machine)
               .seconds();
  }
  // What the schedule adds, of stages as slow as the mean one.
  const double idle = prices.stretch(l, slowest.forward, slowest.input, slowest.weight) - 1;
  double seconds = m * slowest.all() + idle * m * mean + (p - 1) * 2 * hops * v + machine.step;

  // Gradients and weights, over the replicas.
  const StorageTypes types = storage_types(run.precision);
  const auto elements = [&](const StageUnits& s) {
    return static_cast<double>(s.blocks * units.block.elements + (s.embedding ? units.embedding.elements : 0) +
                               (s.head ? units.head.elements : 0));
  };
  double most = 0;
  for (const StageUnits& stage : stages) most = std::max(most, elements(stage));
  const double shards = static_cast<double>(l.shards());
  const double gradient = static_cast<double>(size_of(types.gradient)),
               weight = static_cast<double>(size_of(types.compute));
  const double sum =
      collective(l.zero == 0 ? CommOp::all_reduce : CommOp::reduce_scatter, most * gradient, group, run, machine);
  const double gather = collective(CommOp::all_gather, most * weight, group, run, machine);
  const double backward = slowest.input + slowest.weight;
  if (l.zero <= 1 || l.grad_sync == GradSync::step) {
    seconds += std::max(sum * 0.05, sum - backward);
    if (l.zero > 0) seconds += std::max(gather * 0.05, gather - slowest.forward);
  } else {
    const double moved = m * (sum + (l.zero == 3 ? 2 * gather : 0)) + (l.zero == 2 ? gather : 0);
    seconds = std::max(seconds, moved + mean) + 0.02 * moved;
  }
  const double own = most / shards;
  constexpr double kStateBytes = 30;  // that AdamW reads and writes per element
  const double update = own * kStateBytes / machine.rate_of_copy(own * kStateBytes);
  const double state =
      static_cast<double>(2 * size_of(types.moments) + (types.master != types.compute ? size_of(types.master) : 0));
  seconds += update;
  if (choice.offload)  // it comes after the norm
    seconds += machine.host_link > 0 ? own * state / machine.host_link : 1e9;

  // Bytes of the fullest stage. What is recomputed waits for the weights' phase too, where that comes later.
  const bool later = l.schedule == ScheduleKind::zb_h1 || l.schedule == ScheduleKind::zb_v;
  const std::int64_t kept_by_block = (later ? prices.of(l, Recompute::none, samples) : units).block.kept;
  double fullest = 0;
  const double unit =
      static_cast<double>(std::max({units.block.elements, units.embedding.elements, units.head.elements}));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double e = elements(stages[s]);
    double bytes = l.zero == 3 ? e * weight / shards + 2 * unit * weight : e * weight;
    bytes += l.zero >= 2 ? e * gradient / shards + 2 * unit * gradient : e * gradient;
    if (!choice.offload) bytes += e * state / shards;
    const int flying = l.pp == 1 ? 1
                                 : most_in_flight(l.schedule,
                                                  {.stages = static_cast<int>(l.pp),
                                                   .micro = static_cast<int>(l.micro),
                                                   .chunks = static_cast<int>(l.chunks)},
                                                  static_cast<int>(s));
    const double kept = static_cast<double>(kept_by_block) * static_cast<double>(stages[s].blocks) / v;
    bytes += kept * flying + static_cast<double>(units.working + units.beside);
    fullest = std::max(fullest, bytes);
  }
  return {.seconds = seconds, .bytes = static_cast<std::int64_t>(fullest)};
}

}  // namespace lockstep
