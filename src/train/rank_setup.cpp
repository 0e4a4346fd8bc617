#include "train/rank_setup.h"

#include "base/integers.h"
#include "comm/single_rank.h"
#include "parallel/zero_shards.h"

namespace lockstep {

namespace {

using Options = RankSetup::Options;

// Of a rank that is the only one: for tensors, and for values of the host.
std::array<std::unique_ptr<Communicator>, 2> alone_on(Device device) {
  return {std::make_unique<SingleRank>(device),
          std::make_unique<SingleRank>(device == Device::meta ? Device::meta : Device::cpu)};
}

void check_sizes(const Options& o, const Communicator& ranks) {
  const LayoutSpec& l = o.layout;
  LOCKSTEP_CHECK(l.ranks() == ranks.size(), "{} ranks for dp = {}, pp = {}, cp = {}, tp = {} and {} servers",
                 ranks.size(), l.dp, l.pp, l.cp, l.tp, l.servers);
  LOCKSTEP_CHECK(!o.sync.is_asynchronous() || o.B % (l.dp * l.micro) == 0, "{} samples for tickets of {} workers", o.B,
                 l.dp);
  LOCKSTEP_CHECK(l.micro >= 1 && o.B % l.micro == 0 && o.B / l.micro >= l.dp,
                 "{} samples for {} ranks in {} micro-batches", o.B, l.dp, l.micro);
}

// A real stream knows what it runs on.
Device runs_on(const Options& o, const Stream& stream) {
  return stream.device() == Device::meta ? o.how.runs_on : stream.device();
}

// Where the stages are what recomputation or offload is told by; they do not depend on it.
std::vector<int> stage_of_block(const Options& o, const Stream& stream) {
  const Model whole(o.spec, 1, 1, storage_types(o.precision).compute, {.lora = o.how.lora});
  const Stages stages = stages_of({.model = whole,
                                   .layout = o.layout,
                                   .samples = share_of(o.B, o.layout, 0).count / o.layout.micro,
                                   .seq = o.T,
                                   .runs_on = runs_on(o, stream),
                                   .lora = o.how.lora},
                                  schedule_of(o.layout));
  std::vector<int> all;
  for (int unit = 1; unit + 1 < whole.units(); ++unit) all.push_back(stages.of(unit));
  return all;
}

std::shared_ptr<const Model> make_model(const Options& o, const DataParallel& dp, int rank, const Stream& stream) {
  if (o.model) return o.model;
  Execution how = o.how;
  how.split = o.split(rank);
  how.context = o.layout.context_split(rank);
  how.weights_later = weights_come_later(o.layout);
  how.halves = o.layout.wrap.is_of_halves();
  how.runs_on = runs_on(o, stream);
  how.fp8 = o.precision.compute == Precision::fp8;
  if (!how.memory.recompute_stages.empty() || how.memory.offload_blocks > 0)
    how.stage_of_block = stage_of_block(o, stream);
  if (how.loss_tokens == 0) how.loss_tokens = dp.loss_tokens();
  // A server runs none of it, and asks it for the layout of its weights.
  const std::int64_t samples = (dp.serves() ? share_of(o.B, o.layout, 0).count : dp.own().count) / o.layout.micro;
  if (o.how.varlen) how.documents = RankSetup::row_of_documents(o, dp, rank);
  const std::int64_t rows = o.how.varlen ? 1 : samples;
  return std::make_shared<const Model>(o.spec, rows, how.context.tokens(samples / rows * o.T),
                                       storage_types(o.precision).compute, how);
}

RankStep make_step(const Options& o, const Model& model, int rank, const Stream& stream) {
  LOCKSTEP_CHECK(o.how.memory.gathered != kGatheredAuto, "memory.gathered is to be a number by now");
  return rank_step({.model = model,
                    .layout = o.layout,
                    .stage = static_cast<int>(o.layout.stage(rank)),
                    .serves = o.layout.serves(rank),
                    .samples = share_of(o.B, o.layout, 0).count / o.layout.micro,
                    .seq = o.T,
                    .runs_on = runs_on(o, stream),
                    .kept_bytes = o.how.memory.gathered << 20,
                    .lora = o.how.lora,
                    .offloads_weights = o.how.memory.offload_parameters != Offload::none,
                    .actions = o.actions,
                    .lists = o.lists});
}

std::unique_ptr<DataParallel> make_dp(const Options& o, int rank, const MeshGroups& mesh, const MeshGroups& hosts,
                                      const Stream& stream) {
  check_sizes(o, hosts.world());
  return make_data_parallel({.layout = o.layout,
                             .rank = rank,
                             .B = o.B,
                             .T = o.T,
                             .device = stream.device(),
                             .asynchronous = o.sync.is_asynchronous()},
                            {mesh.replicas(), hosts.replicas()});
}

}  // namespace

std::shared_ptr<const DocumentPairs> RankSetup::row_of_documents(const Options& o, const DataParallel& dp, int rank) {
  const std::int64_t samples = (dp.serves() ? share_of(o.B, o.layout, 0).count : dp.own().count) / o.layout.micro;
  const std::int64_t multiple = o.layout.context_split(rank).multiple(), least = least_tokens(o.layout);
  auto row = o.how.documents->in_row(samples, multiple);
  return row->length() >= least ? row : o.how.documents->in_row(samples, round_up(least, multiple));
}

TensorSplit RankSetup::Options::split(int rank) const {
  TensorSplit split = layout.tensor_split(rank);
  if (precision.compute == Precision::fp8) split.together = 16;
  return split;
}

RankSetup::RankSetup(const Options& options_, const Ranks* with, Memory& memory_, Stream& stream_, Memory* offload_,
                     Memory* rooms_)
    : options(options_),
      alone(with ? std::array<std::unique_ptr<Communicator>, 2>{} : alone_on(stream_.device())),
      ranks(with ? *with : Ranks{*alone[0], *alone[1]}),
      mesh(ranks.replicas, options.layout, options.sync.together()),
      mesh_hosts(ranks.hosts, options.layout, options.sync.together()),
      dp(make_dp(options, rank(), mesh, mesh_hosts, stream_)),
      memory(memory_),
      offload(offload_),
      rooms(rooms_),
      stream(stream_),
      shared_model(make_model(options, *dp, rank(), stream)),
      model(*shared_model),
      step(make_step(options, model, rank(), stream)),
      groups(mesh.replicas(), options.layout, options.sync.is_asynchronous()),
      seen_by_others(memory.device() == Device::cpu ? ranks.replicas.memory(memory.ledger()) : nullptr) {}

// The last units first: the next forward begins with the first ones, while the others are still on their way.
std::vector<bool> RankSetup::offloaded_units(Offload where) const {
  std::vector<bool> moves(static_cast<std::size_t>(model.units()));
  if (where == Offload::none) return moves;
  LOCKSTEP_CHECK(offload, "there is no memory to offload to");
  std::int64_t all = 0, moved = 0;
  for (int u = 0; u < model.units(); ++u) all += holds(u) ? model.unit(u).layout().owned() : 0;
  for (int u = model.units() - 1; u >= 0; --u) {
    if (!holds(u) || static_cast<double>(moved) >= options.how.memory.offload_share * static_cast<double>(all))
      continue;
    moves[static_cast<std::size_t>(u)] = true;
    moved += model.unit(u).layout().owned();
  }
  return moves;
}

std::vector<bool> RankSetup::units_with_weights_offloaded() const {
  std::vector<bool> moves = offloaded_units(options.how.memory.offload_parameters);
  if (step.shape.tie_is_sent()) moves[static_cast<std::size_t>(step.shape.tie_owner)] = false;
  return moves;
}

std::vector<const UnitLayout*> RankSetup::layouts(const std::function<bool(int unit)>& here) const {
  static const UnitLayout kNothing("");
  std::vector<const UnitLayout*> all;
  for (int u = 0; u < model.units(); ++u) all.push_back(here(u) ? &model.unit(u).layout() : &kNothing);
  return all;
}

}  // namespace lockstep
