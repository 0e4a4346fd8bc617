#include "cli/start_ranks.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "cli/launch_processes.h"
#include "comm/mpi/world.h"
#include "comm/processes/run_rank.h"
#include "comm/threads/run_ranks.h"
#include "spec/run/run_settings.h"
#include "train/pinning.h"
#include "train/shared_gpu.h"

namespace lockstep {

namespace {

const char* from_environment(const char* name) { return std::getenv(name); }

bool on_gpu(const RunSpec& spec) { return device_of(spec) == Device::cuda; }
bool servers_on_cpu(const RunSpec& spec) { return spec.run.server_device == ServerDevice::cpu; }

std::unique_ptr<Communicator> connect_beside_servers(Communicator& hosts, Memory&, Stream& stream) {
  return beside_servers_on_cpu(hosts, stream);
}

// A rank's share of its host.
struct HostShare {
  int place;
  int ranks_here;
};

RankPlace place_rank(const RunSpec& spec, Communicator& ranks, const HostShare& share_of_host) {
  const int asked = static_cast<int>(spec.run.threads);
  const int share = std::max(1, usable_cores() / share_of_host.ranks_here);  // before the others' cores are given up
  if (spec.run.pin) take_share_of_cores(share_of_host.place, share_of_host.ranks_here);
  return {.ranks = ranks, .threads = asked > 0 ? asked : share, .alone_here = true};
}

}  // namespace

bool launched_as_one_of_many() {
  return MpiWorld::launched() || from_environment("RANK") || from_environment("WORLD_SIZE");
}

int ranks_of_host() {
  const char* const text = from_environment("LOCAL_WORLD_SIZE");
  return text ? std::max(1, std::atoi(text)) : 1;
}

// Of processes: none of them where all ranks are threads.
struct Launch::World {
  std::unique_ptr<MpiWorld> mpi;
  std::unique_ptr<Communicator> mpi_ranks;  // until run() gives it away
  std::unique_ptr<ProcessWorld> processes;
  TextExchange exchange() const {
    if (mpi) return texts_over(*mpi_ranks);
    return [this](const std::string& mine) { return processes->gather(mine); };
  }
  int rank() const { return mpi ? mpi->rank() : processes->rank(); }
};

Launch::Launch(RunSpec& spec, const std::string& command, bool told, const NamedValues& also, Layout layout)
    : spec_(spec), world_(std::make_unique<World>()) {
  // A launcher that ends the run stops listening first; a rank must end for its own reason, not because it cannot
  // report it.
  if (launched_as_one_of_many()) std::signal(SIGPIPE, SIG_IGN);
  std::optional<UserError> misfit;
  if (MpiWorld::launched()) {
    world_->mpi = std::make_unique<MpiWorld>(ProcessOptions{.deadline_seconds = spec.run.deadline});
    world_->mpi_ranks = world_->mpi->communicator();
    const int processes = world_->mpi->size();
    if (layout == Layout::adopted) misfit = adopt(processes, fmt::format("mpirun -n {}", processes), "-n ", told);
  } else if (const auto place = launched_process(from_environment)) {
    join_as(*place, told, layout);
  } else {
    return;
  }
  require_same_program(command, world_->exchange(), world_->rank());
  NamedValues all = also;
  for (auto& setting : settings_alike(spec)) all.push_back(std::move(setting));
  require_agreement(all, world_->exchange(), world_->rank());
  if (misfit)  // every rank's, then
    require_none(misfit->what(), world_->exchange(), world_->rank(), {.code = misfit->code(), .remedy = ""});
}

Launch::~Launch() = default;

void Launch::join_as(LaunchedProcess place, bool told, Layout layout) {
  if (layout != Layout::any)
    if (const auto misfit = adopt(place.ranks, fmt::format("WORLD_SIZE={}", place.ranks), "as many processes, ", told))
      throw *misfit;
  if (layout == Layout::servers) {
    others_here_ = ranks_of_host() - 1;  // at most
    place.rank -= place.ranks - static_cast<int>(spec_.layout.servers);
    place.ranks = static_cast<int>(spec_.layout.servers);
  }
  ProcessWorld::Options options{.folder = spec_.run.out, .deadline_seconds = spec_.run.deadline};
  if (on_gpu(spec_) && device_of(spec_, place.rank) == Device::cuda) nccl::choose_gpu(place.local_rank);
  if (!on_gpu(spec_) || servers_on_cpu(spec_)) options.open = nullptr;
  world_->processes = std::make_unique<ProcessWorld>(place, std::move(options));
}

// Fits the layout to the number of processes; or leaves it, and returns what is wrong with it. `launcher` and `option`
// are how the launcher names their number.
std::optional<UserError> Launch::adopt(int processes, const std::string& launcher, const std::string& option,
                                       bool told) {
  const std::int64_t ranks = spec_.layout.ranks();
  if (ranks == processes) return std::nullopt;
  if (told)
    return UserError(
        ExitCode::usage,
        fmt::format("{} for a layout of {} rank{} ({})", launcher, ranks, ranks == 1 ? "" : "s", to_text(spec_.layout)),
        fmt::format("use {}{}, or leave --ranks and dp out", option, ranks));
  RunSpec adopted = spec_;
  try {
    spread_over(adopted.layout, processes, option,
                [&](std::string_view, const std::string& problem, const std::string& remedy) {
                  throw UserError(ExitCode::usage, fmt::format("{}: {}", launcher, problem), remedy);
                });
    validate(adopted, [&](std::string_view, std::string_view) { return launcher; });
  } catch (const UserError& error) {
    return error;
  }
  spec_ = std::move(adopted);
  return std::nullopt;
}

int Launch::processes() const {
  return world_->mpi ? world_->mpi->size() : world_->processes ? world_->processes->ranks() : 0;
}

int Launch::ranks_here() const {
  if (world_->processes) return std::max(world_->processes->ranks_here(), 1 + others_here_);
  if (!world_->mpi) return static_cast<int>(spec_.layout.ranks());
  return world_->mpi->local_size();
}

int Launch::ranks_a_device() const { return on_gpu(spec_) && (world_->mpi || world_->processes) ? 1 : ranks_here(); }

// When all ranks refuse, each ends as after any body: none waits for another.
void Launch::run(const Body& body) {
  std::optional<AllRefuse> refused;
  run_joined([&](const RankPlace& place) {
    try {
      body(place);
    } catch (const AllRefuse& all) {
      if (place.alone_here || place.ranks.rank() == 0) refused = all;
    }
  });
  if (refused) throw *refused;
}

void Launch::run_joined(const Body& body) {
  if (world_->mpi) return run_under_mpi(body);
  if (world_->processes) {
    const ProcessWorld& world = *world_->processes;
    return world_->processes->run([&](Communicator& hosts, const TrainingRun::Connect& connect) {
      RankPlace at = place_rank(spec_, hosts, {world.place_here(), ranks_here()});
      at.connect = servers_on_cpu(spec_) ? connect_beside_servers : connect;
      body(at);
    });
  }
  const int count = static_cast<int>(spec_.layout.ranks());
  run_ranks(count,
            [&](std::unique_ptr<Communicator> ranks) {
              RankPlace at = place_rank(spec_, *ranks, {ranks->rank(), count});
              at.alone_here = count == 1;
              if (servers_on_cpu(spec_))
                at.connect = connect_beside_servers;
              else if (on_gpu(spec_) && count > 1)  // threads that share the GPU
                at.connect = [](Communicator& hosts, Memory&, Stream& stream) { return on_shared_gpu(hosts, stream); };
              body(at);
            },
            {.deadline_seconds = spec_.run.deadline});
}

// Host tensors go over MPI and, with one GPU per rank, gradients over NCCL, whose id goes over MPI too.
void Launch::run_under_mpi(const Body& body) {
  MpiWorld& mpi = *world_->mpi;
  run_rank(mpi, std::move(world_->mpi_ranks), [&](std::unique_ptr<Communicator> ranks) {
    RankPlace at = place_rank(spec_, *ranks, {mpi.local_rank(), ranks_here()});
    if (!on_gpu(spec_) || ranks->size() == 1) return body(at);
    if (device_of(spec_, ranks->rank()) == Device::cuda) nccl::choose_gpu(mpi.local_rank());
    if (servers_on_cpu(spec_)) {
      at.connect = connect_beside_servers;
      return body(at);
    }
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
