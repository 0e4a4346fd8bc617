#include "plan/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "pictures/step_picture.h"
#include "plan/fit_search.h"
#include "plan/message_tally.h"
#include "plan/phase_counts.h"
#include "spec/layout/shard.h"
#include "spec/model/model_flops.h"
#include "spec/model/projections.h"
#include "spec/run/run_extent.h"
#include "telemetry/number_text.h"
#include "tensor/cuda/device.h"
#include "tensor/disk/file_memory.h"
#include "train/training_run.h"

namespace lockstep {

std::int64_t Plan::current(Tag tag) const {
  std::int64_t total = 0;
  for (const auto& [key, count] : rows)
    if (key.first == tag) total += count.current;
  return total;
}

namespace {

std::int64_t stored_by(const Model& model, const StepShape& shape, std::int64_t shards = 1) {
  const Shard part{.index = 0, .count = shards};
  std::int64_t elements = 0;
  for (int u = 0; u < model.units(); ++u)
    if (shape.has(u)) elements += part.elements(model.unit(u).layout().owned());
  return elements;
}

constexpr std::int64_t kMostRelayouts = 16;  // that are gone through

// Runs of units that are here.
std::string units_text(const std::vector<std::string>& names, const StepShape& shape) {
  std::string text;
  for (int first = 0; first < shape.units; ++first) {
    if (!shape.has(first)) continue;
    int last = first;
    while (last < shape.last() && shape.has(last + 1)) ++last;
    const auto name = [&](int u) { return names[static_cast<std::size_t>(u)]; };
    text += text.empty() ? "" : ", ";
    text += first == last ? name(first) : fmt::format("{} to {}", name(first), name(last));
    first = last;
  }
  return text;
}

// What all ranks of a run share, found with the first of them.
struct OfAllRanks {
  const RunData* data = nullptr;  // none: each rank has its own
  bool counts_data = false;       // each counts it
  std::shared_ptr<const StepLists> lists = {};
  std::shared_ptr<const Model> model = {};  // all these ranks have the same part of every layer and sample
  std::int64_t stored = 0;
};

// All mask steps of the run, on meta, and a save under the last mask.
std::vector<Relayout> relayouts_of(TrainingRun& run) {
  std::vector<Relayout> all;
  const SparsitySpec& sparsity = run.spec().sparsity;
  if (!sparsity) return all;
  for (std::int64_t step = sparsity.begin + sparsity.every; step <= sparsity.end; step += sparsity.every) {
    // The first and the last ones are what is told; of a long growth, not all that is between.
    if (std::ssize(all) >= kMostRelayouts - 1) step = sparsity.end;
    all.push_back(run.replica().grow_mask(step));
  }
  run.save({});
  return all;
}

bool has_exact_relayouts(const RunSpec& spec) {
  const SparsitySpec& sparsity = spec.sparsity;
  const bool whole = spec.layout.tp == 1 && spec.layout.shards() == 1;
  return whole || !sparsity;
}

// Without a flush, only when the run file says how often (train/loop.cpp).
bool makes_copies(const RunSpec& spec) {
  return spec.train.copy_every != 0 && !spec.sparsity &&
         (!spec.layout.unflushed() || spec.train.copy_every != kCopyAuto);
}

Plan plan_rank(const RunSpec& spec, int rank, OfAllRanks& all) {
  MessageTally tally;
  CountingCommunicator ranks(rank, static_cast<int>(spec.layout.ranks()), "world", tally);
  TrainingRun run(
      spec, Device::meta, "",
      {.ranks = &ranks, .data = all.data, .data_of_rank = all.counts_data, .lists = all.lists, .model = all.model});
  const Model& model = run.replica().model();
  if (!all.lists) {
    all.lists = run.replica().rank_step().lists;
    all.model = run.replica().shared_model();
    const Model whole(spec.model, 1, 1, model.dtype(), {.lora = spec.lora});
    all.stored = stored_by(whole, whole.step_shape(1));
  }
  run.init_weights();
  meta::Stream& stream = meta::Stream::of(run.stream());
  stream.work() = {};
  tally.clear();
  PhaseCounts counts(stream, tally);
  run.replica().count_by(&counts);
  run.step(0, spec.optimizer.learning_rate);
  if (spec.layout.unflushed()) {  // the first step fills the pipeline: all others are like the second
    stream.work() = {};
    tally.clear();
    run.step(0, spec.optimizer.learning_rate);
  }
  const Staging::Traffic moved = run.replica().traffic();
  const std::int64_t activations = run.replica().moved_activations().from_device;
  const StepMessages messages = step_messages(tally, spec.layout);
  const std::vector<GroupMessages> by_group = messages_by_group(tally);
  const meta::Work executed = stream.work();
  StepMessages synchronization;
  if (!spec.sync.agrees_after(1)) {
    tally.clear();
    run.replica().synchronize();
    synchronization = step_messages(tally, spec.layout);
  }
  run.drain();
  PhaseCounts forwards(stream, tally);
  run.replica().count_by(&forwards);
  if (spec.train.eval_every > 0 && run.data().has_evaluation()) run.evaluate();
  run.replica().count_by(nullptr);
  run.save({});
  const std::int64_t steady = run.ledger().current();
  Ledger::Rows rows = run.ledger().rows();
  const std::vector<Relayout> relayouts = relayouts_of(run);
  // Current bytes are those before the first mask step, peaks those of the whole run.
  for (const auto& [key, count] : run.ledger().rows()) {
    const auto [row, added] = rows.try_emplace(key, Ledger::Count{.current = 0, .peak = count.peak});
    if (!added) row->second.peak = count.peak;
  }

  Plan plan{.rank = rank,
            .serves = spec.layout.serves(rank),
            .units = {},
            .parameters = parameter_count(spec.model),
            .adapters = lora_parameters(spec.model, spec.lora),
            .stored = all.stored,
            .tokens_a_step = run.tokens_a_step(),
            .sources = run.data().uses(spec.train.steps * spec.train.global_batch),
            .model_flops = model_flops(spec.model, spec.train.global_batch, run.data().sample_work(), spec.lora),
            .useful_tokens = static_cast<double>(spec.train.global_batch) * run.data().sample_work().tokens,
            .executed = executed,
            .peak = run.ledger().peak(),
            .steady = steady,
            .outside = device_of(spec) == Device::cuda ? cuda::kOutsideBytes : 0,
            .host = run.host_ledger().peak(),
            .disk = run.disk_ledger().peak(),
            .copies = makes_copies(spec) ? run.copy_bytes() : CopyBytes{},
            .moved = moved,
            .moved_activations = activations,
            .messages = messages,
            .by_group = by_group,
            .synchronization = synchronization,
            .relayouts = relayouts,
            .exact_relayouts = has_exact_relayouts(spec),
            .picture = {},
            .rows = std::move(rows),
            .host_rows = run.host_ledger().rows(),
            .disk_rows = run.disk_ledger().rows()};
  std::vector<std::string> units;
  for (int u = 0; u < model.units(); ++u) units.push_back(model.unit(u).layout().name());
  const StepShape& shape = run.replica().rank_step().shape;
  plan.units = units_text(units, shape) + (plan.serves ? ", as a server" : "");
  plan.layer_part = stored_by(model, shape, plan.serves ? spec.layout.shards() : 1);
  if (spec.model.layers <= kMostDrawnLayers && !spec.layout.unflushed())
    plan.picture = picture_of(run.replica().actions(), shape, units);
  for (int t = 0; t < kTags; ++t) plan.peaks[t] = run.ledger().peak(static_cast<Tag>(t));
  return plan;
}

}  // namespace

std::vector<Plan> plan_stages(const RunSpec& spec) {
  check_extent(spec);
  return plan_stages(spec, RunData(spec));
}

std::vector<Plan> plan_stages(const RunSpec& spec, const RunData& data) {
  check_extent(spec);
  std::vector<Plan> plans;
  OfAllRanks all{.data = &data, .counts_data = true};
  for (std::int64_t stage = 0; stage < spec.layout.pp; ++stage)
    plans.push_back(plan_rank(spec, static_cast<int>(stage * spec.layout.cp * spec.layout.tp), all));
  const std::int64_t servers = spec.layout.dp * spec.layout.line();  // the first of them
  for (std::int64_t stage = 0; stage < spec.layout.pp && servers < spec.layout.ranks(); ++stage)
    plans.push_back(plan_rank(spec, static_cast<int>(servers + stage * spec.layout.cp * spec.layout.tp), all));
  return plans;
}

const Plan& fullest(const std::vector<Plan>& plans) { return *std::ranges::max_element(plans, {}, &Plan::peak); }

Plan plan_run(const RunSpec& spec, int rank, const RunData* shared) {
  check_extent(spec);
  OfAllRanks all{.data = shared};
  return plan_rank(spec, rank, all);
}

void require_fit(const RunSpec& spec, const Plan& plan, std::int64_t available, std::int64_t host, std::int64_t disk) {
  if (plan.peak + plan.outside <= available) return;
  std::string tags;
  for (int t = 0; t < kTags; ++t)
    if (plan.peaks[t] > 0)
      tags += fmt::format("{}{} {}", tags.empty() ? "" : ", ", name_of(static_cast<Tag>(t)), byte_text(plan.peaks[t]));
  if (plan.outside > 0) tags += fmt::format(", driver and libraries {}", byte_text(plan.outside));
  throw UserError(ExitCode::does_not_fit,
                  fmt::format("the run needs {} and {} are free ({})", byte_text(plan.peak + plan.outside),
                              byte_text(available), tags),
                  settings_that_fit(spec, {.device = available, .host = host, .disk = disk})
                      .value_or("no setting makes it fit: use a smaller model, a shorter data.seq, more ranks on other "
                                "machines, or a machine with more memory"));
}

void require_host_fit(const Plan& plan, std::int64_t available) {
  if (plan.host <= available) return;
  throw UserError(
      ExitCode::does_not_fit,
      fmt::format("the run keeps {} on the host, for what is offloaded and what it saves, and {} are free",
                  byte_text(plan.host), byte_text(available)),
      "use a machine with more memory, or --set train.async_save=false, which needs no copy of what it saves");
}

namespace {

// The folder of offloaded state, or the part of its path that is there already.
std::filesystem::path offload_place(const RunSpec& spec) {
  std::filesystem::path folder = spec.memory.offload_folder.empty() ? spec.run.out : spec.memory.offload_folder;
  std::error_code ignored;
  while (!folder.empty() && !std::filesystem::exists(folder, ignored) && folder != folder.parent_path())
    folder = folder.parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::int64_t available_disk(const RunSpec& spec) { return disk::free_bytes_in(offload_place(spec)); }

void require_disk_fit(const RunSpec& spec, const Plan& plan, std::int64_t ranks) {
  if (plan.disk == 0) return;
  const std::int64_t available = available_disk(spec);
  if (plan.disk * ranks <= available) return;
  throw UserError(
      ExitCode::does_not_fit,
      fmt::format("the state of {} rank{} needs {} in {}, and {} are free there", ranks, ranks == 1 ? "" : "s",
                  byte_text(plan.disk * ranks), offload_place(spec).string(), byte_text(available)),
      fmt::format("name a folder on a larger disk with memory.offload_folder, or {}",
                  spec.memory.offloads_state() ? "make memory.offload_share smaller"
                                               : "name a number of blocks with memory.offload_blocks"));
}

}  // namespace lockstep
