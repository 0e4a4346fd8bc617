// The gradients of all units: from where backward writes them to the shard of their sum over all ranks that this rank
// updates with.
//
// Two ways of holding them (docs/zero.md): each rank keeps its own of all units and adds up its micro-batches
// (parallel/ddp_buckets.h), or they are summed after every micro-batch and each rank keeps its shard of the sums
// (parallel/zero_gradients.h). A parameter server computes none and keeps a shard of the sums (server_gradients.h).
// What is kept may be offloaded between its uses, of some units or of all: shards of sums, and all gradients of a rank
// that has no other to sum them with (parallel/offloaded_gradients.h).
//
// One thread uses it; memory, groups, stream and layouts outlive it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/staging.h"
#include "parallel/compressed_sums.h"
#include "parallel/embedding_rows.h"
#include "parallel/zero_groups.h"
#include "spec/model/parameters.h"
#include "spec/step/actions.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// A parameter of one unit whose weight is another's: its gradient is added to that one's. Where the two are of
// different stages of a pipeline, what the borrower's rank has added up is sent to the owner's (Gradients::tied).
struct TiedParameter {
  int owner_unit, owner_parameter, borrower_unit, borrower_parameter;
  const UnitLayout* owner;  // its layout, wherever it is
  bool has_owner = true, has_borrower = true;
};

class Gradients {
 public:
  struct Options {
    std::vector<const UnitLayout*> layouts;  // by unit; an empty one of units that are elsewhere
    std::optional<TiedParameter> tie = {};
    const std::vector<Action>& actions;  // of a step: in which order units are written and reduced
    StepShape shape = {};                // and which of them in one call: its bundles
    DType dtype;
    bool overlap = true;  // false: every message is waited for before anything else is done
    // Given the flat gradients of a unit that are whole but for what other ranks of its layers add
    // (partial_gradients.h).
    std::function<void(int unit, const Tensor& flat)> complete = {};
    Algorithm algorithm = Algorithm::canonical;
    Compression compress = {};  // of what is sent; then no `root`, and one copy that state is sharded over
    bool feedback = true;
    std::optional<EmbeddingRows::Options> rows = {};  // of unit 0's first parameter, summed once per step; none: dense
    std::optional<int> root = {};      // the rank that alone gets the sums; none: every rank, or each its shard
    std::vector<bool> offloaded = {};  // by unit: whether what is kept of it is offloaded; empty: nothing is
    Memory* offload = nullptr;         // where to
    bool offload_on_disk = false;
    Memory* rooms = nullptr;  // of a disk: room on the host, if the device's memory is not the host's
  };

  virtual ~Gradients() = default;

  // A step begins in which this rank has these tokens.
  virtual void begin(std::span<const std::int32_t>) {}
  // Where the phases of a unit write the gradients of a micro-batch, by parameter. Asked before each that writes: the
  // weight phase, and of the last unit the forward too.
  virtual const std::vector<Tensor>& open(int unit, int micro) = 0;
  // After each of these phases.
  virtual void close(int) {}
  // Whether they add to what is there or are the first to write it.
  virtual bool adds(int micro) const = 0;
  // The action reduce: this rank's gradient is whole, of the step or (micro >= 0) of a micro-batch. Starts what can be
  // summed now.
  virtual void whole(int unit, int micro) = 0;
  // Of a tie whose other end is elsewhere, flat: what the borrower has added up, after its last reduce; or where the
  // owner gets that, before its own last reduce. The same number of elements on both.
  virtual Tensor tied() = 0;
  // All of them are those of the global batch, where they are wanted. Asked again, it returns at once.
  virtual void wait() = 0;
  // Flat, of a unit: the part that this rank updates with. An offloaded one is where it is kept; it is there for what a
  // stream is given after wait_until_back(), and for everybody after settle().
  virtual Tensor reduced(int unit) const = 0;
  virtual bool is_offloaded(int) const { return false; }
  virtual void wait_until_back(Stream&) {}
  virtual void settle() {}
  virtual Staging::Traffic traffic() const { return {}; }
  // What compression has left out of all ranks' gradients so far, of a part of a unit that begins so far into it
  // (compressed_sums.h): as the last sum_owed() found it, or as deal_owed() is to deal it to the ranks.
  struct Owed {
    int unit;
    std::int64_t begin;
    Tensor elements;
  };
  virtual std::vector<Owed> owed() const { return {}; }
  // The squares of this rank's gradients of a step and of what compression leaves out of them (compressed_sums.h); none
  // where that is not measured.
  virtual Tensor compression_squares() const { return {}; }
  virtual void sum_owed() {}
  virtual void deal_owed() {}
};

// In the way that the layout asks for.
std::unique_ptr<Gradients> make_gradients(const Gradients::Options& options, const LayoutSpec& layout,
                                          ZeroGroups& groups, Memory& memory, Stream& stream);

// Where a unit's own parameters are in its flat buffer, in order.
std::vector<CompressedSum::Range> parameter_ranges(const UnitLayout& layout);

// A unit's parameters in a flat buffer; tied ones in another, which begins with the first of them; of frozen ones
// nothing.
std::vector<Tensor> parameters_in(const UnitLayout& layout, const Tensor& flat, const Tensor& tied);

}  // namespace lockstep
