// Sums over ranks of ranges of gradients of which less is sent than all, under way while something else is computed
// (compressed_sum.h says how each is made).
//
// Sums start in the same order on all ranks and end in it; second legs are messages of a group of their own, so that
// they need not come at the same place among the first ones. A range's sum ends before its next one starts.
//
// One thread uses it; ranks, memory and stream outlive it.
#pragma once
#include <deque>
#include <functional>
#include <optional>

#include "parallel/compressed_sum.h"
#include "parallel/squares.h"

namespace lockstep {

class CompressedSums {
 public:
  struct Site {
    std::vector<CompressedSum::Range> parameters;  // ascending, from the range's beginning
    std::int64_t elements;                         // of the range, padding included
    // Where the ranks' pieces begin and the last ends; empty: every rank gets all sums.
    std::vector<std::int64_t> shards = {};
  };
  struct Options {
    Compression form;
    bool feedback = true;
    DType dtype;
    bool overlap = true;
    std::vector<Site> sites;
  };
  CompressedSums(const Options& options, Communicator& ranks, Memory& memory, Stream& stream);

  // The whole range, and where the sums go: all of it, or this rank's shard. Both may be one.
  void start(int site, const ConstTensor& in, const Tensor& out, std::function<void()> after = {});
  // Waits for the oldest until at most `most` are under way.
  void settle(std::size_t most = 0);

  // A step begins: what follows is measured anew.
  void begin() {
    if (error_) error_->begin();
  }
  // How much the first rank leaves out: the squares of its own gradients in this step's sums, and of what was left over
  // after each. None on other ranks, and without feedback.
  enum Measured { kOfGradients, kOfResiduals };
  Tensor squares() const { return error_ ? error_->all() : Tensor{}; }

  // What all ranks together have left out so far is owed to the sums to come. sum_owed() adds it up, and each rank gets
  // a piece of it, of each range: [begin, begin + elements); residuals stay as they are. deal_owed() makes the
  // residuals anew from these pieces: every rank's is the same share of what is owed. None without feedback. All ranks
  // call both, while no sum is under way.
  struct Owed {
    std::int64_t begin = 0;
    Tensor elements = {};
  };
  Owed owed(int site) const { return kept_[static_cast<std::size_t>(site)].owed; }
  void sum_owed();
  void deal_owed();

 private:
  struct Kept {
    Tensor residual, second;           // of this rank, and of its piece of the sums
    std::vector<std::int64_t> pieces;  // of what is owed
    Owed owed;
  };
  struct UnderWay {
    int site;
    std::function<void()> after;
    bool advanced = false;
  };
  void keep(Memory& memory);  // what is left out
  void measure(int site, Measured which, const ConstTensor& all);
  void go_on();  // as far as that needs no waiting
  void advance(UnderWay& one);
  void finish_oldest();

  const Options options_;
  std::unique_ptr<Communicator> second_group_;
  Stream& stream_;
  Communicator& ranks_;
  Buffer residual_, second_, owed_, staged_;
  std::optional<Squares> error_;
  std::vector<Kept> kept_;                            // by site
  std::vector<std::unique_ptr<CompressedSum>> sums_;  // by site
  std::deque<UnderWay> under_way_;
};

}  // namespace lockstep
