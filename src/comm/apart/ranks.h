// The ranks of a mesh of which some may be gone: a communicator of all of them, for whose groups the same holds.
//
// Ranks that live and die together are a party: all parameter servers are one, and each worker's ranks are another. A
// party has a communicator of its own, of any backend. A group of ranks of one party is a division of that; a group of
// several parties has sends and receives alone, which inside a party are the party's and between two are the links
// (breakable_link.h) that `far` has. A collective over several parties breaks the program.
//
// Sends and receives of a broken link, or where there is none, end at once: on a rank that outlives others they are
// done, and it asks far.broken(); on any other (`far.endures()` false) wait() throws CommError.
//
// One thread uses it; party and `far` outlive it and all groups.
#pragma once
#include <memory>
#include <vector>

#include "comm/apart/breakable_link.h"
#include "comm/communicator.h"

namespace lockstep::apart {

// What is told never waits behind tensors: it has connections of its own.
enum class Channel : std::uint8_t { tensors, tickets };
inline constexpr const char* kTicketsGroup = "tickets";

class FarRanks {
 public:
  virtual ~FarRanks() = default;
  // To that rank of the mesh, of another party; null where it is not there.
  virtual std::shared_ptr<Link> to(int rank, Channel channel) = 0;
  virtual bool endures() const = 0;
  // Seconds that a message waits for its other end; 0: without end.
  virtual double patience(Channel channel) const = 0;
};

struct Parties {
  int rank = 0, size = 1;           // in the mesh
  std::function<int(int rank)> of;  // the party of each rank; those of one party are consecutive
  Communicator* own = nullptr;      // of this rank's party; null: it is alone in it
};

std::unique_ptr<Communicator> make_ranks(const Parties& parties, FarRanks& far);

}  // namespace lockstep::apart
