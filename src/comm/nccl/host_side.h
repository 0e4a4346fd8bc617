// Tensors of the host over NCCL: counts, losses, words and checkpoints' meetings of ranks that have nothing but NCCL.
//
// A communicator on the cpu whose operations are made on the GPU: what goes in is uploaded, the operation runs there in
// a stream of the group's own, beside whatever computes, and what comes out is downloaded. So every operation, type,
// cut and algorithm of nccl/communicator.h works, with the same bits. It is for small messages: each costs two copies.
//
//   start()  uploads (the tensors' bytes have been read when it returns) and starts the operation.
//   wait()   returns when the result is on the host: a failure is told there, and nothing later. There is a deadline.
//
// A message's own deadline counts in place of the group's. A kernel that waits for other ranks holds a part of the GPU
// all the time, so where a deadline is longer than the group's (a disk may take minutes) and `meet` is given, the ranks
// of a collective meet through that first, on the host, and the operation begins when all are there. A Pending that is
// dropped before its meeting is over waits for that.
//
// Memory: each operation has staged_bytes() of device memory, under Tag::communication and the group's name, until it
// has been waited for; that is kept for later ones, so a group holds as much as its operations had at one time, beside
// the staging_bytes() of its NCCL group.
//
// Every group has a stream of its own, so groups may be used by several threads, each by one at a time; a thread works
// on the library's GPU from then on. Library and memory outlive the groups. Failure: CommError.
#pragma once
#include <functional>
#include <memory>

#include "comm/nccl/communicator.h"

namespace lockstep::nccl {

struct HostSideOptions {
  double deadline_seconds = 30;
  std::int64_t staging_bytes = 256 << 10;  // of sums, as in Options
  // Returns when every rank of the world (the first group) is in the meeting of that name; throws CommError when the
  // deadline passes first. May be called from any thread.
  std::function<void(const std::string& name, double deadline_seconds)> meet = {};
};

// Device memory that an operation takes while it is under way.
std::int64_t staged_bytes(const Message& message);

// Of all ranks that come with this id; returns when they are connected, as make_communicator. The device is the
// memory's: the GPU of the thread that opened the library.
std::unique_ptr<Communicator> make_host_side(Library& library, const Membership& place, const Share& share,
                                             Memory& memory, const HostSideOptions& options = {});

}  // namespace lockstep::nccl
