// The communicator of NCCL: one rank a process, with a GPU of its own.
//
// Made by every rank of a group at once, from an id that rank 0 makes and `share` brings to the others. A rank's
// tensors are on its GPU and it computes in one stream; what start() and wait() mean there:
//
//   start()  gives the operation to a stream of its own, to begin when the compute stream has come to where it stands
//            now; nothing waits, neither the host nor the compute stream. Collectives of a group share one stream and
//            go one after the other. Each of the two directions between two ranks has a stream and a connection of its
//            own, so a send is in no order with anything else. The connection is made, in the background, by the first
//            message that needs it; that takes memory of the GPU, for which CUDA may want all running kernels to end,
//            so let first messages be of a kind that waits for nothing which is started later. The same holds for a
//            kernel that CUDA loads at its first launch; those that sum are loaded when the library is opened.
//   wait()   makes the compute stream wait for it, and returns. The host waits only while the operation is not in its
//            stream yet: for the first of its kind until the ranks are connected, and for an all_to_all with counts
//            until those have come.
//   done()   says whether the GPU has done it.
//
// So what wait() has returned for may fail later. A thread of each communicator watches: when NCCL finds a failure, or
// an operation has held up the compute stream (or a host that asks) for longer than the deadline although the rank was
// there, every connection of the group is aborted, so that no stream hangs, and every later start(), done() and
// wait() of this rank fails with the words of the first failure. What was computed from a failed operation's tensors is
// of no use: synchronize, then check(), before anything of a step leaves the GPU. A message's own deadline, longer or
// shorter than the group's, holds for that operation. NCCL does not say who is missing; the words name the operation
// and the group. Calls that do not match hang or mix up bytes: to find them is the control plane's business. Destroying
// a Pending that was not waited for makes the compute stream wait; while an exception unwinds the rank it ends the
// group here instead, so that nothing holds up the error. Pendings go before the communicator, and that before the
// memory, the stream and the library.
//
// Staging for sums that are not `native` (nccl/steps.h) is taken from the memory at once: staging_bytes, under
// Tag::communication and the group's name. What NCCL takes for itself is outside of any ledger. Sends and receives are
// refused in groups of more than kMostPeers ranks (UserError): each pair has its own id. Reductions are of up to
// kMostSummands ranks unless `native`.
//
// Thread safety: one thread at a time. Failure: CommError; EnvironmentError where the library is missing.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl/link.h"
#include "tensor/memory.h"

namespace lockstep::nccl {

inline constexpr int kMostPeers = 64;

struct Options {
  double deadline_seconds = 30;
  std::int64_t staging_bytes = 16 << 20;  // at least; more where many ranks need it
};

// The memory that a rank of a group of `ranks` takes.
std::int64_t staging_bytes(int ranks, const Options& options);

// Gives every rank what rank 0 has (what the others give is not looked at); called once by each.
using Share = std::function<std::vector<char>(std::span<const char> mine)>;

// A rank of a group that is to be made.
struct Membership {
  int rank;
  int ranks;
  std::string name = "world";
};

// Returns when all ranks have come and are connected; CommError when the deadline passes first.
std::unique_ptr<Communicator> make_communicator(Library& library, const Membership& place, const Share& share,
                                                Memory& memory, Stream& compute, const Options& options = {});

}  // namespace lockstep::nccl
