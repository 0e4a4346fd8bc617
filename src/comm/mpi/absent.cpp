// Where there is no MPI: no world of it can be made.
#include <cstdlib>

#include "comm/mpi/world.h"
#include "comm/processes/transport.h"

namespace lockstep {

bool MpiWorld::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

void MpiWorld::will_not_join(const std::string&) {}

MpiWorld::MpiWorld(ProcessOptions options)
    : World(std::move(options), {.transport = []() -> std::unique_ptr<processes::Transport> {
              throw EnvironmentError("this program was built without MPI; build it where Open MPI is installed");
            }}) {}

}  // namespace lockstep
