#include "cli/launch.h"

#include "base/error.h"
#include "base/integers.h"
#include "comm/mpi/run_rank.h"
#include "comm/threads/run_ranks.h"
#include "train/pinning.h"
#include "train/shared_gpu.h"

namespace lockstep {

bool launched_as_one_of_many() { return MpiWorld::launched(); }

// Of processes: none where all ranks are threads.
struct Launch::World {
  std::unique_ptr<MpiWorld> mpi;
};

Launch::Launch(RunSpec& spec) : spec_(spec), world_(std::make_unique<World>()) {
  if (!MpiWorld::launched()) return;
  world_->mpi = std::make_unique<MpiWorld>(MpiOptions{.deadline_seconds = spec.run.deadline});
  const int processes = world_->mpi->size();
  if (spec.layout.ranks() == processes) return;
  const std::string told = fmt::format("mpirun -n {}", processes);
  if (spec.layout.ranks() != 1)
    throw UserError(ExitCode::usage,
                    fmt::format("{} for a layout of {} ranks ({})", told, spec.layout.ranks(), to_text(spec.layout)),
                    fmt::format("use -n {}, or --ranks {}", spec.layout.ranks(), processes));
  spec.layout.dp = processes;
  validate(spec, [&](std::string_view, std::string_view) { return told; });
}

Launch::~Launch() = default;

int Launch::ranks_here() const {
  if (!world_->mpi) return static_cast<int>(spec_.layout.ranks());
  return ceil_div(world_->mpi->size(), world_->mpi->hosts());
}

bool Launch::first() const { return !world_->mpi || world_->mpi->rank() == 0; }

void Launch::run(const std::function<void(const RankPlace&)>& body) {
  const bool on_gpu = device_of(spec_) == Device::cuda;
  const auto as_rank = [&](Communicator& ranks, int place, int ranks_here) {
    const int asked = static_cast<int>(spec_.run.threads);
    const int threads = asked > 0 ? asked : std::max(1, usable_cores() / ranks_here);
    if (spec_.run.pin) take_share_of_cores(place, ranks_here);
    RankPlace at{.ranks = ranks, .threads = threads, .alone_here = world_->mpi != nullptr || ranks.size() == 1};
    if (on_gpu && ranks.size() > 1)  // threads that share the GPU
      at.connect = [](Communicator& hosts, Memory&, Stream& stream) { return on_shared_gpu(hosts, stream); };
    body(at);
  };
  if (world_->mpi) {
    if (on_gpu)
      throw UserError(ExitCode::usage, "mpirun with device = \"cuda\" is not in this version",
                      "run the ranks as threads of one process, without mpirun");
    run_rank(*world_->mpi,
             [&](std::unique_ptr<Communicator> ranks) { as_rank(*ranks, world_->mpi->local_rank(), ranks_here()); });
    return;
  }
  const int count = static_cast<int>(spec_.layout.ranks());
  run_ranks(count, [&](std::unique_ptr<Communicator> ranks) { as_rank(*ranks, ranks->rank(), count); },
            {.deadline_seconds = spec_.run.deadline});
}

}  // namespace lockstep
