#include "support/mesh_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "plan/step_messages.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "tensor/make_stream.h"
#include "train/layout_trial.h"

namespace lockstep::tests {

namespace {

constexpr std::int64_t kMostRanks = 16, kSteps = 10;

bool can_be(const MeshCase& one) {
  bool can = true;
  const LayoutFault fail = [&](std::string_view, const std::string&, const std::string&) { can = false; };
  check_layout(one.B, one.layout, fail);
  if (can) check_tensor_layout(one.model.spec, one.layout, fail);
  if (can) check_context_layout(one.model.spec, one.T, one.layout, fail);
  if (can) check_pipeline_layout(one.model.spec, one.layout, fail);
  return can;
}

// Kinds of context that divide cp, from the ring to heads alone.
std::vector<CpKind> context_kinds(std::int64_t cp) {
  std::vector<CpKind> kinds;
  for (std::int64_t heads = 1; heads <= cp; ++heads)
    if (cp % heads == 0)
      kinds.push_back(heads == 1 ? kRing : heads == cp ? kUlysses : CpKind::of_factors(cp / heads, heads));
  return kinds;
}

// Number `turn` of what can be chosen with these axes; whether there is such a one.
bool choose(MeshCase& one, std::int64_t turn, const std::vector<NamedSpec>& models) {
  const auto pick = [&](std::int64_t every, std::int64_t of) { return turn / every % of; };
  LayoutSpec& l = one.layout;
  one.model = models[static_cast<std::size_t>(turn % std::ssize(models))];
  l.zero = pick(1, 4);
  l.grad_sync = pick(4, 3) == 0 ? GradSync::step : LayoutSpec::usual_sync(l.zero);
  if (l.zero == 3 && pick(2, 3) == 0) l.reshard = Reshard::never;
  if (l.zero == 3 && pick(4, 3) == 0) l.wrap = WrapRule::of_halves();
  if (l.zero > 0 && pick(3, 3) == 0)
    for (std::int64_t d = 2; d < l.replicas(); ++d)
      if (l.replicas() % d == 0) l.shard = d;
  l.overlap = pick(5, 4) == 0 ? Switch::off : Switch::on;
  constexpr std::int64_t kMicros[] = {1, 2, 3, 4, 5};
  l.micro = kMicros[pick(2, 5)];
  if (l.pp > 1 && pick(1, 3) == 0) l.micro = std::max<std::int64_t>(1, l.pp - 1);  // fewer than stages
  if (l.pp > 1) {
    l.schedule = kScheduleKinds[static_cast<std::size_t>(pick(1, std::ssize(kScheduleKinds)))];
    l.chunks = l.schedule == ScheduleKind::interleaved && l.pp <= 3 && pick(5, 2) == 0 ? 3 : usual_chunks(l.schedule);
    if (l.pp * l.chunks > one.model.spec.layers + 2) l.schedule = ScheduleKind::one_f_one_b, l.chunks = 1;
  }
  if (l.tp > 1) {
    l.sp = pick(3, 4) == 0 ? Switch::off : Switch::on;
    l.tp_chunks = pick(1, 2) == 0 ? 1 : 4;
  }
  if (l.cp > 1) {
    const std::vector<CpKind> kinds = context_kinds(l.cp);
    l.cp_kind = kinds[static_cast<std::size_t>(pick(1, std::ssize(kinds)))];
    if (l.cp_kind != kUlysses && pick(2, 3) == 0) l.cp_order = CpOrder::plain;
  }
  l.uneven = l.dp > 1 && pick(7, 4) == 0 ? Switch::on : Switch::off;
  one.B = l.dp * l.micro + (l.uneven == Switch::on ? l.micro : 0);
  const std::int64_t unit = std::lcm(l.context_split(0).multiple(), l.sp == Switch::on ? l.cp * l.tp : std::int64_t{1});
  one.T = unit * (unit >= 12 ? 1 : unit >= 6 ? 3 : 5);
  return one.T <= one.model.spec.max_positions && can_be(one);
}

}  // namespace

RunSpec MeshCase::run(Precision precision) const {
  RunSpec spec;
  spec.model = model.spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = T;
  spec.train = {.steps = kSteps, .global_batch = B, .save_every = 0, .seed = 4};
  spec.train.save_last = false;
  spec.optimizer.clip = 0.05;
  spec.schedule.warmup = 2;
  spec.precision.compute = precision;
  spec.layout = layout;
  spec.run.threads = 1;
  return spec;
}

std::vector<MeshCase> mesh_matrix() {
  std::vector<NamedSpec> models = cut_specs();
  for (NamedSpec& model : models) model.spec.layers = 7;
  std::vector<MeshCase> all;
  std::int64_t turn = 0;
  for (const std::int64_t dp : {1, 2, 3, 4, 5, 6})
    for (const std::int64_t pp : {1, 2, 3, 4, 5, 6})
      for (const std::int64_t cp : {1, 2, 3, 4, 5, 6, 8})
        for (const std::int64_t tp : {1, 2, 3, 4, 6}) {
          const int axes = (dp > 1) + (pp > 1) + (cp > 1) + (tp > 1);
          if (axes < 2 || dp * pp * cp * tp > kMostRanks) continue;
          // Two of each, and more of those that have more to choose.
          for (int wanted = cp == 6     ? 5
                            : axes == 2 ? 2
                            : axes == 3 ? 3
                                        : 10,
                   tries = 0;
               wanted > 0 && tries < 200; ++tries) {
            MeshCase one{.model = {}, .layout = {.dp = dp, .pp = pp, .cp = cp, .tp = tp}};
            if (!choose(one, turn++, models)) continue;
            all.push_back(std::move(one));
            --wanted;
          }
        }
  return all;
}

std::vector<MeshCase> mesh_sample(std::size_t count, unsigned seed) {
  std::vector<MeshCase> all = mesh_matrix();
  std::mt19937 random(seed);
  // Not std::shuffle, which is another one with another library.
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(std::min(count, all.size()));
  return all;
}

namespace {

// Every gradient and every weight by itself.
void expect_learns_in_double(const MeshCase& one) {
  const LayoutReport report = compare_layouts(one.run(Precision::fp64), {LayoutSpec{}, one.layout}, {.steps = kSteps});
  const LayoutVerdict& verdict = report.verdicts.at(0);
  EXPECT_EQ(verdict.tolerance, 1e-11);
  if (verdict.first)
    ADD_FAILURE() << one.words() << ", T = " << one.T << ": " << verdict.first->what << " at step "
                  << verdict.first->step << " is off by " << verdict.first->error;
}

// Where a true gradient is nearly zero, Adam makes steps of its rounding: later gradients are judged by rounding_check.
void expect_learns_in_single(const MeshCase& one) {
  const LayoutReport report = compare_layouts(one.run(Precision::fp32), {LayoutSpec{}, one.layout}, {.steps = 2});
  const LayoutVerdict& verdict = report.verdicts.at(0);
  for (const auto& difference : {verdict.first, verdict.undecided})
    if (difference)
      ADD_FAILURE() << one.words() << " in fp32: " << difference->what << " at step " << difference->step
                    << " is off by " << difference->error << ", " << verdict.rounding->share << " of what is allowed";
  const auto learned = [&](const LayoutSpec& layout) {
    Replica::Options options = learning_options(one.model.spec, layout, Precision::fp32);
    options.B = one.B;
    options.T = one.T;
    return learn(options, kSteps);
  };
  expect_close(learned(one.layout), learned({}),
               {.losses = 1e-5, .norms = 1e-4, .gradients = 1e-5, .weights = 1e-5, .later = 1e-3}, one.words());
}

}  // namespace

void expect_learns_as_one_rank(const MeshCase& one) {
  expect_learns_in_double(one);
  expect_learns_in_single(one);
}

void expect_costs_as_on_meta(const MeshCase& one, const MemorySpec& memory_spec,
                             const std::shared_ptr<const DocumentPairs>& documents, bool varlen) {
  const Replica::Options options{.spec = one.model.spec,
                                 .B = one.B,
                                 .T = one.T,
                                 .layout = one.layout,
                                 .precision = Precision::fp32,
                                 .seed = 5,
                                 .how = {.memory = memory_spec, .documents = documents, .varlen = varlen}};
  struct Costs {
    Ledger::Rows rows, offloaded;
    StepMessages messages;
    ActivationOffload::Traffic moved;
  };
  const auto step = [&](Communicator& ranks, CommLog& log, Memory& memory, Stream& stream, Memory* offload) {
    Replica replica(options, {ranks, ranks}, memory, stream, offload);
    replica.init_weights();
    const std::size_t before = log.begun();
    const TokenBatch batch = random_batch(options, 1, varlen ? std::llround(documents->work().tokens) : 0);
    const auto given = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(share.first * options.T),
                                      static_cast<std::size_t>(share.count * options.T));
    };
    replica.step(given(batch.tokens), given(batch.targets));
    const std::vector<CommRecord> records = log.last();
    Costs costs{.rows = memory.ledger().rows(),
                .offloaded = offload ? offload->ledger().rows() : Ledger::Rows{},
                .messages = step_messages(std::span(records).subspan(before), options.layout),
                .moved = replica.moved_activations()};
    replica.settle();
    return costs;
  };
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  run_ranks(static_cast<int>(one.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const int rank = group->rank(), size = group->size();
    CommLog log(kAll), meta_log(kAll);
    Recorder recorded(std::move(group), log);
    CpuDevice cpu;
    Ledger offloaded, ledger, meta_offloaded;
    const auto offload = offload_memory(memory_spec, offloaded);
    const Costs real = step(recorded, log, cpu.memory(), cpu.stream(), offload.get());
    const auto memory = make_memory(Device::meta, ledger), nowhere = make_memory(Device::meta, meta_offloaded);
    const auto stream = make_stream(*memory, 1, Device::cpu);  // with what a real one takes
    Recorder on_meta(std::make_unique<meta::Communicator>(rank, size), meta_log);
    const Costs planned = step(on_meta, meta_log, *memory, *stream, offload ? nowhere.get() : nullptr);
    EXPECT_EQ(real.rows, planned.rows) << one.words() << ", rank " << rank;
    EXPECT_EQ(real.offloaded, planned.offloaded) << one.words() << ", rank " << rank;
    EXPECT_EQ(real.moved, planned.moved) << one.words() << ", rank " << rank;
    EXPECT_TRUE(real.messages == planned.messages) << one.words() << ", rank " << rank;
  });
}

}  // namespace lockstep::tests
