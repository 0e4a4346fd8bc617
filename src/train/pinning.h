// Which cores a rank computes on.
//
// Ranks of one host cut the cores that the process may use (its affinity, which a launcher may have narrowed) into
// shares as far apart as the machine's shape allows (hwloc): neighbours in a share are neighbours in caches and memory.
// Threads inherit their maker's cores, so a rank takes its share before it starts any.
#pragma once

namespace lockstep {

// Cores that the calling thread may run on.
int usable_cores();

// Keeps the calling thread, and all it starts from now on, on share `rank` of `ranks`. Where there are more ranks than
// cores nothing is done, nor where the machine does not tell or allow: then the system places threads as it likes.
// Whether the thread is on its share.
bool take_share_of_cores(int rank, int ranks);

}  // namespace lockstep
