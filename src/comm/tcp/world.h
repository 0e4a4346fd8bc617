// Ranks that are processes without MPI: comm/processes/world.h, with TCP between the hosts.
//
// Who the others are is known before: a launcher says which rank of how many this process is, and the processes have a
// way to exchange short texts, commonly the control plane (comm/control/session.h). Ranks of one host need no
// connection. Several worlds may follow each other in a process.
//
// A rank of another host whose process has ended without a word is named at once, as its connection is closed ("rank 2
// (host b) is gone: …"); a host that is cut off is found by the deadline.
#pragma once
#include "comm/agreement.h"
#include "comm/processes/world.h"

namespace lockstep {

struct TcpOptions {
  int rank = 0, size = 1;
  std::string address = "127.0.0.1";  // of this host, for ranks of other hosts to connect to (tcp::address_towards)
  TextExchange gather = {};           // throws where a rank does not come within the deadline
  ProcessOptions processes = {};
};

class TcpWorld final : public processes::World {
 public:
  // Returns when all ranks have come and are connected. Failure: what `gather` throws; CommError where ranks cannot
  // reach each other; EnvironmentError where a host gives no shared memory.
  explicit TcpWorld(TcpOptions options);
};

}  // namespace lockstep
