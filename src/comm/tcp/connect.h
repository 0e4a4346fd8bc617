// Connects every rank with every rank of another host, at the start of a world: a network that lets some of them not
// reach each other is found then, and named, and not in the middle of a run.
//
// Each rank listens at a free port of its own address until all that connect to it have come, and no longer. The rank
// with the higher number connects. Both ends prove that they are of this world (hello.h) before anything else is read:
// a connection that has not is dropped after two seconds, and of more than kMostUnproven the oldest first.
#pragma once
#include <functional>
#include <vector>

#include "comm/agreement.h"
#include "comm/control/socket.h"
#include "comm/processes/transport.h"

namespace lockstep::tcp {

inline constexpr std::size_t kMostUnproven = 128;

struct Connecting {
  int rank = 0;
  std::string address = {};  // this rank's, for others to connect to
  TextExchange gather = {};  // over the control plane: the keys go over it
  double deadline_seconds = 30;
};

// By rank: none for this rank and those of its host. Failure: CommError, which says who cannot be reached or has not
// come. All ranks call it; `gather` is called once.
std::vector<control::Socket> connect_ranks(const Connecting& how, const processes::RankHosts& hosts);

// The address of this machine that is used to reach another: what others reach it by. UserError where the other's
// address has no meaning, CommError where there is no way to it.
std::string address_towards(const std::string& other);

}  // namespace lockstep::tcp
