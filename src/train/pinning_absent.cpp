// Builds without hwloc leave the placing of threads to the system.
#include <thread>

#include "train/pinning.h"

namespace lockstep {

int usable_cores() { return static_cast<int>(std::thread::hardware_concurrency()); }
bool take_share_of_cores(int, int) { return false; }

}  // namespace lockstep
