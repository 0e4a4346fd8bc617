#include "cli/launch.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "cli/launch_processes.h"
#include "comm/mpi/run_rank.h"
#include "comm/threads/run_ranks.h"
#include "train/pinning.h"
#include "train/shared_gpu.h"

namespace lockstep {

namespace {

const char* from_environment(const char* name) { return std::getenv(name); }

bool on_gpu(const RunSpec& spec) { return device_of(spec) == Device::cuda; }

// A rank's share of its host.
struct Seat {
  int place;
  int ranks_here;
};

RankPlace sit_down(const RunSpec& spec, Communicator& ranks, const Seat& seat) {
  const int asked = static_cast<int>(spec.run.threads);
  const int share = std::max(1, usable_cores() / seat.ranks_here);  // before the others' cores are given up
  if (spec.run.pin) take_share_of_cores(seat.place, seat.ranks_here);
  return {.ranks = ranks, .threads = asked > 0 ? asked : share, .alone_here = true};
}

}  // namespace

bool launched_as_one_of_many() {
  return MpiWorld::launched() || from_environment("RANK") || from_environment("WORLD_SIZE");
}

// Of processes: none of them where all ranks are threads.
struct Launch::World {
  std::unique_ptr<MpiWorld> mpi;
  std::unique_ptr<ProcessWorld> processes;
};

Launch::Launch(RunSpec& spec, bool told) : spec_(spec), world_(std::make_unique<World>()) {
  // A launcher that ends the run stops listening first; a rank is to end by its own reason, not by telling it.
  if (launched_as_one_of_many()) std::signal(SIGPIPE, SIG_IGN);
  if (MpiWorld::launched()) {
    world_->mpi = std::make_unique<MpiWorld>(MpiOptions{.deadline_seconds = spec.run.deadline});
    const int processes = world_->mpi->size();
    adopt(processes, fmt::format("mpirun -n {}", processes), "-n ", told);
    return;
  }
  const std::optional<LaunchedProcess> place = launched_process(from_environment);
  if (!place) return;
  if (!on_gpu(spec))
    throw UserError(ExitCode::usage,
                    fmt::format("RANK and WORLD_SIZE are set, and run.device = \"{}\": such ranks have a GPU each",
                                spec.run.device),
                    fmt::format("mpirun -n {} starts ranks on the cpu; or --set run.device=cuda", place->ranks));
  adopt(place->ranks, fmt::format("WORLD_SIZE={}", place->ranks), "as many processes, ", told);
  nccl::choose_gpu(place->local_rank);
  world_->processes = std::make_unique<ProcessWorld>(
      *place, ProcessWorld::Options{.folder = spec.run.out, .deadline_seconds = spec.run.deadline});
}

Launch::~Launch() = default;

// The layout becomes that of the processes there are. `launcher` and `option` are the launcher's words for their
// number.
void Launch::adopt(int processes, const std::string& launcher, const std::string& option, bool told) {
  const std::int64_t ranks = spec_.layout.ranks();
  if (ranks == processes) return;
  if (told)
    throw UserError(
        ExitCode::usage,
        fmt::format("{} for a layout of {} rank{} ({})", launcher, ranks, ranks == 1 ? "" : "s", to_text(spec_.layout)),
        fmt::format("use {}{}, or leave --ranks and dp out", option, ranks));
  spread_over(spec_.layout, processes, option,
              [&](std::string_view, const std::string& problem, const std::string& remedy) {
                throw UserError(ExitCode::usage, fmt::format("{}: {}", launcher, problem), remedy);
              });
  validate(spec_, [&](std::string_view, std::string_view) { return launcher; });
}

int Launch::ranks_here() const {
  if (world_->processes) return world_->processes->ranks_here();
  if (!world_->mpi) return static_cast<int>(spec_.layout.ranks());
  return world_->mpi->local_size();
}

int Launch::ranks_a_device() const { return on_gpu(spec_) && (world_->mpi || world_->processes) ? 1 : ranks_here(); }

void Launch::run(const Body& body) {
  if (world_->mpi) return run_under_mpi(body);
  if (world_->processes) {
    const ProcessWorld& world = *world_->processes;
    return world_->processes->run([&](Communicator& hosts, const TrainingRun::Connect& connect) {
      RankPlace at = sit_down(spec_, hosts, {world.place_here(), world.ranks_here()});
      at.connect = connect;
      body(at);
    });
  }
  const int count = static_cast<int>(spec_.layout.ranks());
  run_ranks(count,
            [&](std::unique_ptr<Communicator> ranks) {
              RankPlace at = sit_down(spec_, *ranks, {ranks->rank(), count});
              at.alone_here = count == 1;
              if (on_gpu(spec_) && count > 1)  // threads that share the GPU
                at.connect = [](Communicator& hosts, Memory&, Stream& stream) { return on_shared_gpu(hosts, stream); };
              body(at);
            },
            {.deadline_seconds = spec_.run.deadline});
}

// Numbers of the host go over MPI, and with a GPU each, gradients over NCCL, whose id goes over MPI too.
void Launch::run_under_mpi(const Body& body) {
  MpiWorld& mpi = *world_->mpi;
  run_rank(mpi, [&](std::unique_ptr<Communicator> ranks) {
    RankPlace at = sit_down(spec_, *ranks, {mpi.local_rank(), ranks_here()});
    if (!on_gpu(spec_) || ranks->size() == 1) return body(at);
    nccl::choose_gpu(mpi.local_rank());
    const std::unique_ptr<nccl::Library> library = nccl::open_library();
    Ledger ledger;
    const std::unique_ptr<Memory> staging =
        make_memory(Device::cuda, ledger);  // apart from the run's, which is planned
    at.connect = [&](Communicator& hosts, Memory&, Stream& stream) {
      return nccl::make_communicator(*library, {hosts.rank(), hosts.size(), "replicas"}, share_over(hosts), *staging,
                                     stream, {.deadline_seconds = spec_.run.deadline});
    };
    body(at);
  });
}

}  // namespace lockstep
