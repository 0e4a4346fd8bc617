// The steps of an operation over NCCL, which its rank gives to a link's stream one after the other.
//
// A reduction by any algorithm but `native` is an exchange: each rank gets every other's elements of its own piece into
// the staging buffer, sums them in the algorithm's order (comm/sum_order.h) with kernels/tree_sum.h, and in an
// all-reduce gives its piece to all the others. So the bits are those of thread ranks on the cpu, and partial sums are
// wide. The staging buffer bounds the memory: a piece larger than a slot of it goes in several rounds, and the exchange
// of the next round travels with the result of the last. `native` leaves the sum to NCCL. What has no sum is copied by
// NCCL as it is.
//
// Of a call of several tensors the copies are one group of NCCL's; the sums follow each other in the stream.
//
// An all_to_all with counts first tells the ranks what they will get; its second part is given to the stream when that
// has arrived, so advance() must be called in between (nccl/in_flight.h).
#pragma once
#include "comm/message.h"
#include "comm/nccl/in_flight.h"
#include "tensor/memory.h"
#include "tensor/transfer.h"

namespace lockstep::nccl {

// What a rank's steps work with. Everything outlives the steps.
struct StepContext {
  int rank;
  int ranks;
  InFlightOperations& in_flight;
  Buffer& staging;
  HostBuffer& counts;  // of an all_to_all, sent and received: 2 ranks integers of 64 bits
};

// The steps of a collective that check_message has let pass, in a group of more than one.
std::vector<Step> steps_of(const Message& message, const StepContext& context);

}  // namespace lockstep::nccl
