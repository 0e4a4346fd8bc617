// The fixed part of one rank, made once from the options: its place in the mesh and its groups, the kind of data
// parallel, the model, and the lists of actions.
//
// Its state (rank_state.h) and the executor of its steps (step_executor.h) are made from it. Memory, stream and ranks
// outlive it.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/apart/worker_links.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "parallel/data_parallel.h"
#include "parallel/mesh_groups.h"
#include "parallel/zero_groups.h"
#include "spec/layout/layout_spec.h"
#include "spec/model/precision.h"
#include "spec/run/optimizer_spec.h"
#include "spec/run/sparsity_spec.h"
#include "spec/run/sync_spec.h"
#include "telemetry/time_account.h"
#include "train/rank_step.h"
#include "train/stream_times.h"

namespace lockstep {

struct RankSetup {
  // The ranks of the layout's mesh (spec/layout/layout_spec.h): for tensors, which are where the step runs, and for
  // values of the host.
  struct Ranks {
    Communicator& replicas;
    Communicator& hosts;
  };
  struct Options {
    ModelSpec spec;
    std::int64_t B;          // samples of a step's batch, over all ranks; share_of says who takes which of them
    std::int64_t T;          // tokens of a sample
    LayoutSpec layout = {};  // of ranks() ranks
    PrecisionSpec precision = {};
    OptimizerSpec optimizer = {};
    SyncSpec sync = {};
    SparsitySpec sparsity = {};
    std::uint64_t seed = 0;
    // The step in another order (spec/step/actions.h says which are allowed); empty: by the layout's schedule.
    std::vector<Action> actions = {};
    // Of another rank of the same run, and of one that has the same part of every layer and sample; none: made here.
    std::shared_ptr<const StepLists> lists = {};
    std::shared_ptr<const Model> model = {};
    Execution how = {};              // runs_on is the stream's own device, or what meta stands for
    bool halt_on_bad_value = false;  // the first step whose norm is not finite keeps all later ones from updating
    int host_threads = 1;            // that update what is offloaded, where the host does
    bool check_state = false;        // what no other rank holds is hashed after each update and before the next one
    bool capture = true;             // of steps that are repeated; false: action by action, every time
    TimeAccount* account = nullptr;  // of this rank's time, which outlives it; none: not measured
    StreamTimes* times = nullptr;    // that it marks, where the stream runs ahead; it outlives the rank
    // Asynchronous workers may die and join (async_steps.h), and this rank is connected to those of other parties so.
    // Of a server: its connections to workers, which outlive it; of a worker none.
    bool workers_may_die = false;
    apart::WorkerLinks* workers = nullptr;

    // How layers are split, as a rank sees it. Products in FP8 take rows by sixteens.
    TensorSplit split(int rank) const;
  };

  // `with` null: this rank is the only one. `offload`: for state that the options move off the device;
  // none: they move nothing.
  RankSetup(const Options& options, const Ranks* with, Memory& memory, Stream& stream, Memory* offload = nullptr,
            Memory* rooms = nullptr);
  RankSetup(const RankSetup&) = delete;
  RankSetup& operator=(const RankSetup&) = delete;

  int rank() const { return ranks.hosts.rank(); }
  bool on_meta() const { return stream.device() == Device::meta; }
  bool has(int unit) const { return step.shape.has(unit); }
  // A unit of which weights are here: its own, or a copy of a tied weight of another stage.
  bool holds(int unit) const { return has(unit) || step.shape.has_copy(unit); }
  // By unit; those that are not here have nothing.
  std::vector<const UnitLayout*> layouts(const std::function<bool(int unit)>& here) const;
  std::vector<const UnitLayout*> layouts() const {
    return layouts([this](int u) { return has(u); });
  }
  // By unit: whether such state of it is offloaded there.
  std::vector<bool> offloaded_units(Offload where) const;
  // And its weights: not those that two stages send each other.
  std::vector<bool> units_with_weights_offloaded() const;
  // Where tensors that are sent are stored.
  Memory& sent_memory() const { return seen_by_others ? *seen_by_others : memory; }
  // Groups of replicas that take local steps (parallel/local_steps.h), and this rank's; otherwise one.
  std::int64_t step_groups() const { return options.sync.groups(options.layout.dp); }
  std::int64_t step_group() const {
    return step_groups() == 1 ? 0 : options.layout.dp_rank(rank()) / options.sync.together();
  }
  // Of a micro-batch without padding, which is one row (Execution::varlen): what is expected.
  std::shared_ptr<const DocumentPairs> row_of_documents() const { return row_of_documents(options, *dp, rank()); }
  static std::shared_ptr<const DocumentPairs> row_of_documents(const Options& options, const DataParallel& dp,
                                                               int rank);
  // Of such a micro-batch, of all ranks that split it: that each of them has one.
  static std::int64_t least_tokens(const LayoutSpec& layout) {
    return layout.sp == Switch::on ? layout.cp * layout.tp : 1;
  }
  // The type of losses, and of sums.
  DType sums() const { return accumulator_of(model.dtype()); }

  const Options options;
  const std::array<std::unique_ptr<Communicator>, 2> alone;  // of a rank that is the only one
  const Ranks ranks;
  MeshGroups mesh, mesh_hosts;
  const std::unique_ptr<DataParallel> dp;
  Memory& memory;
  Memory* const offload;
  Memory* const rooms;  // on the host, for what is on its way between a disk and a GPU
  Stream& stream;
  const std::shared_ptr<const Model> shared_model;
  const Model& model;
  const RankStep step;
  ZeroGroups groups;
  const std::unique_ptr<Memory> seen_by_others;  // if the ranks have memory that others can read
};

}  // namespace lockstep
