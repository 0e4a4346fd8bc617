// Tensors of the host over NCCL: counts, losses, texts and checkpoints of ranks that have no other backend than NCCL.
//
// A communicator on the cpu whose operations run on the GPU: inputs are uploaded, the operation runs there in a stream
// of the group's own, beside whatever computes, and outputs are downloaded. So every operation, type, split and
// algorithm of nccl/communicator.h works, with the same bits. It is for small messages: each costs two copies.
//
//   start()  uploads (the tensors' bytes have been read when it returns) and starts the operation.
//   wait()   returns when the result is on the host: a failure is thrown there, and nothing later. There is a deadline.
//
// A message's own deadline counts in place of the group's. A kernel that waits for other ranks holds a part of the GPU
// all the time. So where a deadline is longer than the group's (a disk may take minutes) and `barrier` is given, the
// ranks of a collective pass that first, on the host, and the operation begins when all are there. A Pending that is
// dropped before its barrier has been passed waits for that.
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
  // Returns when every rank of the world (the first group) is in the barrier of that name; throws CommError when the
  // deadline passes first. May be called from any thread.
  std::function<void(const std::string& name, double deadline_seconds)> barrier = {};
};

// Device memory that an operation takes while it is under way.
std::int64_t staged_bytes(const Message& message);

// Of all ranks that come with this id; returns when they are connected, as make_communicator. The device is the
// memory's: the GPU of the thread that opened the library.
std::unique_ptr<Communicator> make_host_side(Library& library, const Membership& place, const Share& share,
                                             Memory& memory, const HostSideOptions& options = {});

}  // namespace lockstep::nccl
