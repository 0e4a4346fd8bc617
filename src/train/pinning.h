// Which cores a rank computes on.
//
// The cores that the process may use (its affinity, which a launcher may have narrowed) are split over the ranks of the
// host into shares as far apart as the machine's topology allows (hwloc): the cores of a share are neighbours in caches
// and memory. Threads inherit the cores of the thread that starts them, so a rank takes its share before it starts any.
#pragma once

namespace lockstep {

// Cores that the calling thread may run on.
int usable_cores();
// Those of the host, whatever this process may use.
int host_cores();

// Keeps the calling thread, and all it starts from now on, on share `rank` of `ranks`. Does nothing where there are
// more ranks than cores, or where the system does not tell or allow it: then the system places threads as it likes.
// Whether the thread is on its share.
bool take_share_of_cores(int rank, int ranks);

}  // namespace lockstep
