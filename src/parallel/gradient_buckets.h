// The gradients of all units, and how they become those of the global batch: bucket by bucket, while backward goes on.
//
// Gradients live where they are sent from. The units' flat gradients lie one behind the other in the order in which
// backward ends with them, so that a bucket, a run of whole parameters of at most so many bytes (or one larger
// parameter), is one range of elements and one message, whatever units it touches. A bucket is summed over the ranks as
// soon as all of it is whole on this rank; every rank starts the same buckets in the same order. What is summed and in
// which order of ranks does not depend on how it was cut: every element's sum is the same to the bit for any bucket
// size, with overlap and without (DESIGN: the order of sums).
//
// With a root, only that rank gets the sums: central data parallel.
//
// They lie in the memory that the communicator would have them in, where it says one (comm/communicator.h): else in the
// one given. The ledger is that of the one given.
//
// One thread uses it; memory, communicator and stream outlive it.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "spec/parameters.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

namespace lockstep {

class GradientBuckets {
 public:
  struct Options {
    DType dtype;             // of gradients
    std::int64_t bytes = 0;  // of a bucket, at most; 0: every parameter is one
    bool overlap = true;     // false: each is waited for before anything else is done
    Algorithm algorithm = Algorithm::canonical;
    std::optional<int> root = {};  // who gets the sums; none: every rank
  };

  // The layouts by unit; `order`: the units, as backward ends with them.
  GradientBuckets(std::span<const UnitLayout* const> layouts, std::span<const int> order, const Options& options,
                  Communicator& ranks, Memory& memory);

  Tensor of(int unit) const;  // its flat gradient, of layout.owned() elements

  // This rank's gradient of the unit is whole: starts what can be summed now. In the order given.
  void whole(int unit);
  // All of them are those of the global batch, where they are wanted. Asked again, it returns at once.
  void wait();

 private:
  void start(std::int64_t begin, std::int64_t end);

  Options options_;
  Communicator& ranks_;
  std::int64_t elements_ = 0;
  std::vector<std::int64_t> begins_, sizes_;  // by unit
  std::vector<std::int64_t> ends_;            // of the buckets, ascending
  std::vector<int> order_;
  std::unique_ptr<Memory> shared_;  // with the other ranks, where they can see it
  Buffer buffer_;
  std::size_t units_whole_ = 0, started_ = 0;  // of this step
  std::vector<Communicator::Started> pending_;
};

}  // namespace lockstep
