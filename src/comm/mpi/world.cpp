#include "comm/mpi/world.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "comm/mpi/launch_registry.h"
#include "comm/mpi/transport.h"

namespace lockstep {

namespace mpi {
namespace {

void refuse_if_a_process_will_not_join(const LaunchRegistry& registry) {
  const auto absent = registry.find_not_joining();
  if (!absent) return;
  // One of this host tells it. The others end later: mpirun ends all as soon as one has ended, whatever they were about
  // to tell.
  if (!registry.is_first_here()) std::this_thread::sleep_for(std::chrono::seconds(1));
  throw UserError(ExitCode::usage,
                  fmt::format("rank {} runs '{}', which joins no other ranks, and rank {} waits for it", absent->rank,
                              absent->command, registry.rank()),
                  "start the same command on all ranks");
}

// This process joins; what follows is the start of MPI itself, which nothing can end.
LaunchRegistry joined() {
  LaunchRegistry registry = LaunchRegistry::of_environment();
  registry.will_join();
  refuse_if_a_process_will_not_join(registry);
  return registry;
}

std::string late_text(const LaunchRegistry& registry, double seconds) {
  return fmt::format(
      "the start of MPI was not done within {} s: {}; start all ranks with the same command within that time, or set a "
      "longer run.deadline",
      seconds, registry.missing());
}

}  // namespace
}  // namespace mpi

bool MpiWorld::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

void MpiWorld::will_not_join(const std::string& command) {
  mpi::LaunchRegistry::of_environment().will_not_join(command);
}

MpiWorld::MpiWorld(ProcessOptions options)
    : World(std::move(options), [registry = mpi::joined()] {
        return Start{.transport = [] { return std::make_unique<mpi::Transport>(); },
                     .check = [registry] { mpi::refuse_if_a_process_will_not_join(registry); },
                     .late = [registry](double seconds) { return mpi::late_text(registry, seconds); }};
      }()) {}

}  // namespace lockstep
