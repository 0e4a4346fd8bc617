// The sum over ranks of one range of gradients of which less is sent than all: the two ways of making it.
//
// A range has parameters with padding between them, which is neither sent nor touched; each is compressed by itself, so
// what is sent of it does not depend on what else goes in the same message. `pieces` says which rank gets which part of
// the sums: piece r is [pieces[r], pieces[r + 1]), its bounds multiples of 256 but for the last.
//
//   block codes (bf16, int8, onebit; kernels/block_codes.h), words w(p) for piece p of N:
//     first leg    all-to-all: each rank sends every piece's code to the piece's rank     Σ w - w(own)
//                  that rank adds up what the codes decode to, in the canonical tree
//     second leg   all-gather of the sums' codes, where every rank gets all sums          (N-1) w(own)
//   topk (kernels/top_k.h), k entries: a value and an index each, of every parameter ⌈share · elements⌉
//     all ranks    all-gather                                                             (N-1) k
//     each a piece all-to-all: of every parameter's part in a piece as large a share      Σ k(p) - k(own)
//                  each rank adds up the entries, rank after rank
//
// What is left out of a gradient is kept by the rank that left it out and added to its next one (error feedback): the
// residual. The second leg leaves something out too, and has a residual of its own, of the rank that makes the sum.
// Without feedback there are none.
//
// Calls come in the order start, advance, finish. One thread uses it; groups, memory and stream outlive it.
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "spec/run/compression.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

class CompressedSum {
 public:
  struct Range {
    std::int64_t begin, end;
    std::int64_t elements() const { return end - begin; }
  };
  struct Options {
    Compression form;
    DType dtype;                        // of the gradients
    std::vector<Range> parameters;      // ascending, each beginning at a multiple of 256
    std::vector<std::int64_t> pieces;   // one more than ranks
    bool gathers = true;                // every rank gets all sums; false: its piece
    Tensor residual = {}, second = {};  // of all elements, and of this rank's piece; none without feedback
  };
  // Legs of one group come in one order on all ranks; those of two groups need not.
  struct Groups {
    Communicator& first;
    Communicator& second;
  };
  virtual ~CompressedSum() = default;

  // in: all pieces; out: all of them, or this rank's, which may be where they are in `in`.
  virtual void start(const ConstTensor& in, const Tensor& out) = 0;
  virtual bool first_done() = 0;  // advance() would not wait
  virtual void advance() = 0;     // waits for the first leg and starts the second, where there is one
  virtual void finish() = 0;

  // The parts of parameters that are in [begin, end).
  static std::vector<Range> within(const std::vector<Range>& parameters, std::int64_t begin, std::int64_t end);
};

std::unique_ptr<CompressedSum> make_compressed_sum(const CompressedSum::Options& options, CompressedSum::Groups groups,
                                                   Memory& memory, Stream& stream);

}  // namespace lockstep
