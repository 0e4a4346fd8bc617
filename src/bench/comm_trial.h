// One operation of a communication benchmark: what each rank calls, what it must get, and what copying it would cost.
//
// n elements of fp32 over N ranks, equal shares, root 0. Inputs and outputs are separate tensors, except of an
// all-reduce, which is in place as in training; for MPI's own it is separate too, which is how Open MPI's is fastest
// (up to three times, at 64 MiB).
#pragma once
#include "comm/communicator.h"

namespace lockstep {

struct CommTrial {
  static constexpr std::int64_t kElement = 4;  // bytes

  CommOp op;
  int ranks;
  std::int64_t elements;  // n, a multiple of ranks

  std::int64_t bytes() const { return elements * kElement; }
  std::int64_t share() const { return elements / ranks; }
};

// Each of all n elements: what a rank gives and what it gets, or has a part of.
struct RankTensors {
  Tensor x, y;
};

Message message_of(const CommTrial& trial, Algorithm algorithm, int rank, const RankTensors& tensors);

// (R + W) / 2 bytes (bench/comm_bench.h), one rank's share of them: at most n elements'.
std::int64_t least_copied(const CommTrial& trial);
// Bytes that a rank sends by theory, the most of any.
std::int64_t most_sent(const CommTrial& trial, Algorithm algorithm);

// Makes one call on every rank and holds what this one gets, here and there over its length, to what it must be
// (ProgramError). Afterwards the tensors are zeros, which stay zeros however often they are summed.
void prove(Communicator& comm, const CommTrial& trial, Algorithm algorithm, const RankTensors& tensors);

}  // namespace lockstep
