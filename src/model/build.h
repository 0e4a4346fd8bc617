// What every part of a model is built from: the spec, the sizes of a micro-batch, the type it computes in, how it is to
// be run, and where to declare slots.
#pragma once
#include <memory>

#include "model/names.h"
#include "model/recompute.h"
#include "model/slots.h"
#include "model/unit.h"
#include "spec/layout/context_split.h"
#include "spec/layout/tensor_split.h"
#include "spec/model/document_pairs.h"
#include "spec/model/model_spec.h"
#include "spec/model/model_units.h"
#include "spec/model/parameters.h"
#include "spec/run/lora_spec.h"
#include "spec/run/memory_spec.h"

namespace lockstep {

// The slots a unit shares with its neighbours.
struct Between {
  Slot x = -1, dx = -1;  // from the unit before, and its gradient
  Slot y = -1, dy = -1;  // to the unit after, and its gradient
  // The largest magnitudes of the gradients, where products in FP8 want them of whoever writes those; none of what
  // another stage has made.
  Slot dx_amax = -1, dy_amax = -1;
};

// How a model is run, beside what it is.
struct Execution {
  Device runs_on = Device::cpu;  // or what `meta` stands for: kernels may ask for memory of their own there
  bool deterministic = true;     // false: kernels may be chosen whose last bits differ from run to run
  MemorySpec memory = {};
  TensorSplit split = {};        // this rank's part of every layer
  ContextSplit context = {};     // and of every sample
  std::int64_t cache_ranks = 1;  // for generating: ranks that have a cache of keys and values between them
  std::int64_t loss_tokens = 0;  // of a micro-batch, by which the head's tiles are measured; 0: its own
  // Weight phases of blocks come long after their input phases (zero-bubble schedules): what is held between the two
  // counts, so that it is what products of weights read and no more. false: they follow each other, and what both need
  // is made once.
  bool weights_later = false;
  std::vector<int> stage_of_block = {};  // empty: one stage has them all
  bool halves = false;                   // of blocks are units (spec/model/model_units.h)
  // What documents there are in samples of several; none: each is one (data/packed_dataset.h).
  std::shared_ptr<const DocumentPairs> documents = {};
  // Without padding: a micro-batch is one row of documents (B = 1), of as many tokens as they have; T is the room for
  // it, of several samples, and may be more than the model has positions. `documents` are of such a row.
  bool varlen = false;
  bool fp8 = false;    // the products of blocks, in a bf16 model (model/fp8_products.h)
  LoraSpec lora = {};  // with it everything else is frozen (model/lora.h)
};

// Where in a block a layer stands, and what its slots are called.
struct LayerPlace {
  int unit;
  Half half;  // of the forward; in backward the other one
  const char* name;
  bool ends_branch = false;  // its last product
};
inline Half other(Half half) { return half == Half::first ? Half::second : Half::first; }

// Which products of a block have parameters that are trained: their own or, where those are frozen, adapters.
struct TrainedProducts {
  bool qkv = true, out = true;  // of attention: what reads its branch's norm, and what ends the branch
  bool up = true, down = true;  // of the feed-forward part, likewise
  bool attention() const { return qkv || out; }
  bool feed_forward() const { return up || down; }
};
inline TrainedProducts trained_products(const ModelSpec& spec, const LoraSpec& lora) {
  if (!lora) return {};
  const BlockNames names = block_names(spec, 0);
  const auto adapts = [&](const auto&... name) { return (... || (!name.empty() && lora.adapts(name))); };
  return {.qkv = adapts(names.qkv, names.query, names.key, names.value),
          .out = adapts(names.out),
          .up = adapts(names.gate, names.up),
          .down = adapts(names.down)};
}

// Rows of a table that is split over ranks.
inline ParameterPiece rows_of(LogicalTensor table, const Part& rows) {
  const std::int64_t width = table.elements() / rows.all;
  ParameterPiece piece{std::move(table)};
  piece.runs.emplace();
  if (rows.count > 0) piece.runs->push_back(Run::flat(0, rows.first * width, rows.count * width));
  return piece;
}

struct Build {
  const ModelSpec& spec;
  std::int64_t B;  // samples of a micro-batch
  std::int64_t T;  // tokens of a sample that are here
  DType dtype;     // of activations and of the weights that compute
  Slots& slots;
  Execution how = {};

  std::int64_t tokens() const { return B * T; }
  std::int64_t own_tokens() const { return how.split.own_rows(tokens()); }  // between products
  bool splits() const { return how.split.size > 1; }
  // Somebody may have to join a branch with the residual (model/branch_slots.h).
  bool branches_stand_alone() const { return spec.dropout > 0 || splits(); }
  bool frozen() const { return static_cast<bool>(how.lora); }  // every parameter but those of adapters
  TrainedProducts trained() const { return trained_products(spec, how.lora); }
  // Whether a unit has parameters that are trained, and whether anybody wants the gradient of what it is given.
  bool trains(int unit) const {
    if (!frozen()) return true;
    if (!units().is_of_block(unit)) return false;
    if (!how.halves) return trained().attention() || trained().feed_forward();
    const int first = units().first_of(static_cast<int>(units().block_of(unit)) + 1);
    return unit == first ? trained().attention() : trained().feed_forward();
  }
  bool hands_back(int unit) const {
    for (int u = 0; u < unit; ++u)
      if (trains(u)) return true;
    return false;
  }
  // The same of what the feed-forward part of a block is given, or that part of a unit of its own.
  bool feed_forward_hands_back(int unit) const { return hands_back(unit) || (!how.halves && trained().attention()); }
  // The last phase that reads what the product of a weight's gradient reads, and phases before it do.
  static Phase read_last(bool trained) { return trained ? Phase::weight : Phase::input; }
  ModelUnits units() const { return {spec.layers, how.halves}; }
  BlockRecompute recompute(int unit) const {
    if (!units().is_of_block(unit)) return {};
    return block_recompute(recompute_level(how.memory, units().block_of(unit), how.stage_of_block));
  }
  bool offloads(int unit) const {
    return units().is_of_block(unit) && offloads_activations(how.memory, units().block_of(unit), how.stage_of_block);
  }
  // A slot that lives within one unit; where that runs its forward twice, with a second life for the second time, and
  // of what it keeps, where that is offloaded, for the backward.
  Slot add(SlotSpec slot) const {
    const bool from_forward = slot.born.phase == Phase::forward;
    if (from_forward && recompute(slot.born.unit).forward_again) return slots.add_twice(std::move(slot));
    return from_forward && slot.last.phase != Phase::forward ? add_kept(std::move(slot)) : slots.add(std::move(slot));
  }
  // One that is kept from a forward for the backward of the unit that it ends in.
  Slot add_kept(SlotSpec slot) const {
    return offloads(slot.last.unit) ? slots.add_offloaded(std::move(slot)) : slots.add(std::move(slot));
  }

  // A slot of (tokens, columns) that lives within one unit; of this rank's own tokens.
  Slot rows(int unit, const std::string& name, std::int64_t columns, Phase born, Phase last,
            Half born_half = Half::first, Half last_half = Half::second) const {
    return add(SlotSpec{name, dtype, {tokens(), columns}, {unit, born}, {unit, last}, born_half, last_half}.of(
        SlotRows::tokens));
  }
  Slot own_rows(int unit, const std::string& name, std::int64_t columns, Phase born, Phase last,
                Half born_half = Half::first, Half last_half = Half::second) const {
    return add(SlotSpec{name, dtype, {own_tokens(), columns}, {unit, born}, {unit, last}, born_half, last_half}.of(
        SlotRows::own));
  }
  // Of the second half of a block's forward, after all that a second run of it computes.
  Slot rows_at_end(int unit, const std::string& name, std::int64_t columns) const {
    const Moment forward{unit, Phase::forward};
    return slots.add(SlotSpec{name, dtype, {tokens(), columns}, forward, forward, Half::second}.of(SlotRows::tokens));
  }
  // The last phase of a block that reads the gradient of what a branch joined: the products of weights, unless dropout
  // has made another of it. `trained`: the branch's last product is.
  Phase last_of_branch_gradient(bool trained) const {
    return how.weights_later && spec.dropout > 0 ? Phase::input : read_last(trained);
  }
  // A parameter that every rank has whole, and, with sequence parallelism, a part of its gradient.
  ParameterPiece on_all_ranks(LogicalTensor tensor, bool partial) const {
    ParameterPiece piece{std::move(tensor)};
    piece.counted = how.split.rank == 0;
    if (partial) piece.partial_over = how.split.size;
    return piece;
  }
};

}  // namespace lockstep
