#include "comm/nccl/communicator.h"

#include <algorithm>

#include "base/integers.h"
#include "comm/nccl/member.h"

namespace lockstep::nccl {

std::int64_t staging_bytes(int ranks, const Options& options) {
  if (ranks == 1) return 0;
  const std::int64_t ids = static_cast<std::int64_t>(sizeof(Id)) * ranks * (ranks <= kMostPeers ? ranks : 1);
  return round_up(std::max({options.staging_bytes, ids, kAlignment * ranks}), kAlignment);
}

std::unique_ptr<Communicator> make_communicator(Library& library, const Membership& place, const Share& share,
                                                Memory& memory, Stream& compute, const Options& options) {
  LOCKSTEP_CHECK(place.rank >= 0 && place.rank < place.ranks, "rank {} of {}", place.rank, place.ranks);
  LOCKSTEP_CHECK(memory.device() == compute.device(), "memory of {} and a stream of {}", name_of(memory.device()),
                 name_of(compute.device()));
  Id id{};
  if (place.rank == 0) id = library.make_id();
  const std::vector<char> shared = share(id);
  LOCKSTEP_CHECK(shared.size() == id.size(), "an id of {} bytes, not {}", shared.size(), id.size());
  std::copy(shared.begin(), shared.end(), id.begin());
  return std::make_unique<Member>(Member::Resources{library, memory, compute, options}, id, place);
}

}  // namespace lockstep::nccl
