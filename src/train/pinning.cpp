#include "train/pinning.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more cores than a cpu_set_t has room for
}

int host_cores() { return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDeleter>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  // Threads that share a core are left to the system, and what is not a core or a cache is of no use here.
  hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (hwloc_topology_load(topology) != 0) return nullptr;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return nullptr;
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
  const bool known = allowed && hwloc_cpuset_from_glibc_sched_affinity(topology, allowed, &set, sizeof(set)) == 0 &&
                     hwloc_topology_restrict(topology, allowed, 0) == 0;
  hwloc_bitmap_free(allowed);
  return known ? std::move(owned) : nullptr;
}

}  // namespace

bool take_share_of_cores(int rank, int ranks) {
  if (ranks < 2 || ranks > usable_cores() || rank < 0 || rank >= ranks) return false;
  const Topology topology = load_topology();
  if (!topology) return false;
  hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  std::vector<hwloc_cpuset_t> shares(static_cast<std::size_t>(ranks), nullptr);
  const bool cut =
      hwloc_distrib(topology.get(), &root, 1, shares.data(), static_cast<unsigned>(ranks), INT_MAX, 0) == 0;
  const bool pinned =
      cut && hwloc_set_cpubind(topology.get(), shares[static_cast<std::size_t>(rank)], HWLOC_CPUBIND_THREAD) == 0;
  for (hwloc_cpuset_t share : shares) hwloc_bitmap_free(share);
  return pinned;
}

}  // namespace lockstep
