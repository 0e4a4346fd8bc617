// What an operation is made of over NCCL: the steps that its rank gives to a link's stream, one after the other.
//
// A reduction by any algorithm but `native` is an exchange: each rank gets every other's elements of its own piece into
// the staging buffer, sums them in the algorithm's order (comm/sum_order.h) with kernels/tree_sum.h, and of an
// all-reduce gives its piece to all the others. So the bits are those of thread ranks on the cpu, and partial sums are
// wide. The staging buffer bounds the memory: where a piece is larger than a slot of it, it goes chunk by chunk, and
// the next chunk's exchange travels with the last one's result. `native` leaves the sum to NCCL. What has no sum is
// copied by NCCL as it is.
//
// An all_to_all with counts first tells the ranks what they will get; its second part is given to the stream when that
// has come, so somebody must come by in between (nccl/track.h).
#pragma once
#include "comm/message.h"
#include "comm/nccl/track.h"
#include "tensor/memory.h"
#include "tensor/transfer.h"

namespace lockstep::nccl {

// Where a rank's steps work. Everything outlives the steps.
struct Ground {
  int rank;
  int ranks;
  Track& track;
  Buffer& staging;
  HostBuffer& told;  // 2 ranks integers of 64 bits
};

// The steps of a collective that check_message has let pass, in a group of more than one.
std::vector<Step> steps_of(const Message& message, const Ground& ground);

}  // namespace lockstep::nccl
