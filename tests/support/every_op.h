// Every operation of a communicator in every type, cut and algorithm, held to the bits of thread ranks on the cpu.
//
// What a rank gives is a function of its number, so what thread ranks make of a trial is computed in whatever process
// asks, and the ranks under test may be anywhere. A rank's buffers start as poison where an operation writes; all of
// both is compared, so a byte written where none should be is found too.
#pragma once
#include "comm/ranks.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

struct Trial {
  CommOp op = CommOp::barrier;
  DType dtype = DType::f32;
  std::int64_t n = 0;  // elements of each rank's part, about
  Reducing how = {};
  int root = 0;
  bool uneven = false;    // parts of several sizes, some of none
  bool in_place = false;  // in is a part of out, or out of in
  bool plain = false;     // small whole numbers, whose sums have no order; else of many magnitudes
};
std::string describe(const Trial& trial);

// All of them, for so many ranks, by these algorithms. Those of `native` are of plain numbers.
std::vector<Trial> every_trial(int ranks, const std::vector<Algorithm>& algorithms,
                               const std::vector<std::int64_t>& sizes);

// The two buffers of one rank in one trial, after it or before.
struct TrialBuffers {
  Row in, out;
};
TrialBuffers before(const Trial& trial, int rank, int ranks);
// The calls that the rank makes, on tensors of its buffers.
std::vector<Message> calls_of(const Trial& trial, int rank, int ranks, const Tensor& in, const Tensor& out);

// What each rank has after each trial, by the threads backend on the cpu: [trial][rank].
std::vector<std::vector<TrialBuffers>> references(const std::vector<Trial>& trials, int ranks);

// Runs a trial on tensors of the memory: uploads, starts all calls, waits for all, downloads.
TrialBuffers run_trial(const Trial& trial, Communicator& comm, Memory& memory, Stream& stream);

// "" when the rank has what it should: to the bit, but for a native mean, which is within a rounding or two.
std::string difference(const Trial& trial, const TrialBuffers& got, const TrialBuffers& want);

}  // namespace lockstep::tests
