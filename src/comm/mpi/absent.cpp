// Where there is no MPI: no world can be made, so nothing of it can be called.
#include "comm/mpi/world.h"

#include <cstdlib>

#include "comm/mpi/run_rank.h"

namespace lockstep {

namespace {
[[noreturn]] void absent() {
  throw EnvironmentError("this program was built without MPI; build it where Open MPI is installed");
}
}  // namespace

struct MpiWorld::State {};

bool MpiWorld::launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return true;
  return false;
}
void MpiWorld::will_not_join(const std::string&) {}
std::int64_t MpiWorld::group_bytes(int, int, int, const MpiOptions&) { absent(); }
MpiWorld::MpiWorld(MpiOptions) { absent(); }
MpiWorld::~MpiWorld() = default;
int MpiWorld::rank() const { absent(); }
int MpiWorld::size() const { absent(); }
int MpiWorld::hosts() const { absent(); }
int MpiWorld::local_rank() const { absent(); }
int MpiWorld::local_size() const { absent(); }
bool MpiWorld::sees_tensors() const { absent(); }
std::unique_ptr<Communicator> MpiWorld::communicator() { absent(); }
void MpiWorld::abort(const std::string&) { absent(); }
void run_rank(MpiWorld&, std::unique_ptr<Communicator>, const std::function<void(std::unique_ptr<Communicator>)>&) {
  absent();
}

}  // namespace lockstep
