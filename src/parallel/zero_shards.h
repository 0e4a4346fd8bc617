// What a rank holds of a unit: its weights and, unless another rank updates them, the optimizer's state, or a shard of
// these.
//
// Flat buffers in the order of the unit's layout: the weights that compute and, where they are 16-bit and not masters
// themselves, an fp32 master copy; the optimizer keeps its moments itself. Ranks that shard a unit have a shard each of
// masters and moments, and of the weights all, padded to the shards (ZeRO 1 and 2), or their own shard (ZeRO 3;
// spec/layout/shard.h). Masters apart from the weights, and moments, may be offloaded to the host's memory or to a
// disk, and are brought for an update a window at a time (offload/staging.h); so may be a shard of the weights, which
// is also brought whole where it is gathered (parallel/zero_weights.h). Padding between parameters is zero and stays
// zero. Frozen parameters (docs/lora.md) are in a buffer apart, of weights that compute and nothing else: all of them,
// or under ZeRO 3 a shard. Gradients are elsewhere (parallel/gradients.h). With AdamW in bf16 that is 18 bytes per
// element: weight 2, master 4, moments 8 and gradient 4; with bf16 gradients 16, with bf16 moments too 12, and with
// bf16 masters 8.
//
// Under a mask (docs/sparsity.md) moments, and masters that are apart, are packed: they have elements for what stays
// alone, in the order of the flat buffer, and the mask has a bit for each element. Weights and gradients stay as they
// are. An update takes a window at a time: it packs the gradient, and puts the new weights back into their places.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>

#include "kernels/mask.h"
#include "offload/staging.h"
#include "optim/flat_optimizer.h"
#include "parallel/magnitude_mask.h"
#include "spec/layout/shard.h"
#include "spec/model/parameters.h"
#include "spec/model/precision.h"
#include "spec/run/optimizer_spec.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// The element types of a run: what computes, what gradients are summed in, what the optimizer updates, and what it
// keeps beside that.
struct StorageTypes {
  DType compute, gradient, master, moments;
};
StorageTypes storage_types(const PrecisionSpec& precision);

class ZeroShard {
 public:
  struct Options {
    StorageTypes types;
    OptimizerSpec optimizer;
    bool updates = true;  // false: no masters and no optimizer state; the weights come from elsewhere
    Shard shard = {};
    bool whole_weights = true;               // false: a part of them too
    Memory* weights_in = nullptr;            // where they lie, for whoever gets them from here; none: with the rest
    Memory* weights_offloaded_to = nullptr;  // in the place of that, where a part of them is held
    Memory* state_in = nullptr;              // where masters and moments are offloaded to; none: with the rest
  };
  // The layout outlives the storage.
  ZeroShard(const UnitLayout& layout, const Options& options, Memory& memory, Stream& stream);

  const UnitLayout& layout() const { return layout_; }
  // One stored parameter that is not tied, where the weights are whole.
  Tensor weight(int parameter) const;

  // The frozen parameters that are here: of the unit's, elements first_frozen() and on.
  Tensor flat_frozen() const;
  std::int64_t first_frozen() const { return whole_ ? 0 : shard_.begin(layout_.frozen()); }
  // Flat buffers of everything that is trained here, the tied parameters' left out: all weights that are here, and of
  // weights and masters the part that this rank updates. Masters are the weights where none are kept apart.
  Tensor flat_weight() const;
  Tensor own_weight() const;
  Tensor own_master() const;
  bool updates() const { return optimizer_.has_value(); }
  // What an update needs of what is offloaded: masters apart from the weights, moments, weights. Nothing where all is
  // on the device.
  Staging::Pass offloaded() const;
  bool weights_are_offloaded() const { return offloads_weights_; }
  // Own masters, wherever they are.
  bool master_is_offloaded() const { return masters_.memory() ? offloads_ : offloads_weights_; }
  // Where both are kept: what publishing reads and writes of what is offloaded.
  Staging::Pass offloaded_to_publish() const;
  // What an update under a mask needs beside the state, a window of elements at a time.
  struct Room {
    static constexpr std::int64_t kWindow = 1 << 16;
    Buffer buffer;
    DType full;
    Room(Memory& memory, DType sums)
        : buffer(memory.allocate(2 * kWindow * size_of(sums), Tag::workspace, "sparsity")), full(sums) {}
    // Two of them, in any type that is not wider.
    Tensor place(int which, DType dtype, std::int64_t elements) const {
      return view(buffer, dtype, {elements}, which * kWindow * size_of(full) / size_of(dtype));
    }
  };
  // Whether state is packed. Where it is, optimizer_state() and masters that are apart have elements for what stays
  // alone.
  bool packed() const { return mask_.memory() != nullptr; }
  std::int64_t kept() const { return before_.back(); }
  bool masters_apart() const { return masters_.memory() != nullptr; }
  Tensor mask() const { return view(mask_, DType::i64, {mask_words(part_elements())}); }
  // Lays the state out anew for these, which are among those that stay now; the rest of the weights becomes zero. Old
  // and new state are there at the same time.
  void set_mask(const Survivors& stay, const Room& room, Memory& memory, Stream& stream);
  // Packed state in its places; what is masked is `rest`. `dense` has as many elements as this part.
  void unpack_to(const Tensor& dense, const Tensor& packed, double rest, Stream& stream) const {
    unpack({.dense = dense, .packed = packed, .mask = mask(), .rest = rest}, stream);
  }
  void update(ConstTensor gradient, ConstTensor control, const Room& room, Stream& stream);

  // What the optimizer keeps, by the names a checkpoint gives it.
  std::vector<std::pair<std::string_view, Tensor>> optimizer_state() const { return optimizer_->named_state(); }
  // How many elements this part has.
  std::int64_t part_elements() const { return shard_.elements(layout_.owned()); }

  // The elements of a logical tensor that are in this rank's part, within a range of its flat buffers. There may be
  // none.
  struct Piece {
    const ParameterPiece& tensor;
    const StoredParameter& parameter;  // that it is part of
    std::vector<Run> runs;             // `here` being from the range's beginning
    std::int64_t offset, elements;     // of the range
    Tensor of(const Tensor& flat) const { return flat.slice(0, offset, elements); }
  };
  template <class Visit>
  void each_piece(Visit&& visit) const {
    each_piece_in(0, part_elements(), visit);
  }
  // Of elements [begin, end) of this rank's part, as if that were all of it.
  template <class Visit>
  void each_piece_in(std::int64_t begin, std::int64_t end, Visit&& visit) const {
    each_piece_of(false, shard_.begin(layout_.owned()) + begin, end - begin, visit);
  }
  // Of the frozen parameters, within flat_frozen().
  template <class Visit>
  void each_frozen_piece(Visit&& visit) const {
    each_piece_of(true, first_frozen(), flat_frozen().elements(), visit);
  }

  // Makes this rank's part of the weights what the masters say, or, where one of both is offloaded, `count` elements
  // from `begin` on, with the tensors of offloaded_to_publish() having been brought.
  void publish(Stream& stream);
  void publish(std::int64_t begin, std::int64_t count, std::span<const Tensor> brought, Stream& stream);
  // With this rank's part of the gradient. Nothing where another rank does it.
  void update(ConstTensor gradient, ConstTensor control, Stream& stream);
  // The same of a part of it, elements `begin` and on, whose gradient this is, with what is offloaded having been
  // brought: the tensors of offloaded().
  void update(std::int64_t begin, std::span<const Tensor> brought, ConstTensor gradient, ConstTensor control,
              Stream& stream);
  // The same on the host, where what is offloaded stays (offload/host_updates.h): `weight` is on the host too, and
  // becomes what elements `begin` and on of the weights are to be. Where masters are not apart it is those weights.
  void update_on_host(std::int64_t begin, const Tensor& weight, ConstTensor gradient, ConstTensor control,
                      Stream& stream) const;

 private:
  // Those within elements [from, from + count) of a unit's flat buffer, of what is frozen or of what is not.
  template <class Visit>
  void each_piece_of(bool frozen, std::int64_t from, std::int64_t count, Visit&& visit) const {
    const std::int64_t to = from + count;
    for (std::size_t p = 0; p < layout_.parameters().size(); ++p) {
      const StoredParameter& parameter = layout_.parameters()[p];
      if (parameter.frozen != frozen) continue;
      const std::int64_t offset = layout_.offset(static_cast<int>(p));
      for (std::size_t i = 0; i < parameter.pieces.size(); ++i) {
        Piece piece{parameter.pieces[i], parameter, {}, 0, 0};
        std::int64_t first = to, last = from;
        for (Run run : parameter.runs_of(i)) {
          run.here.begin += offset;
          for (const Run& inside : clipped(run, from, to)) {
            first = std::min(first, inside.here.begin);
            last = std::max(last, inside.here.end());
            piece.runs.push_back(inside);
          }
        }
        if (!piece.runs.empty()) {
          for (Run& run : piece.runs) run.here.begin -= first;
          piece.offset = first - from;
          piece.elements = last - first;
        }
        visit(piece);
      }
    }
  }
  // Elements that stay before each window, and in all.
  static std::vector<std::int64_t> count_windows(const Survivors& stay, std::int64_t elements);
  void repack(const Tensor& to, const Tensor& from, const Tensor& mask, const std::vector<std::int64_t>& before,
              const Room& room, Stream& stream) const;
  template <class Body>
  void each_window(const std::vector<std::int64_t>& before, Body&& body) const {
    for (std::int64_t w = 0; w + 1 < std::ssize(before); ++w) {
      const std::int64_t begin = w * Room::kWindow, count = std::min(Room::kWindow, part_elements() - begin);
      body(w, begin, count);
    }
  }

  const UnitLayout& layout_;
  StorageTypes types_;
  OptimizerSpec spec_;
  Shard shard_;
  bool whole_;
  bool offloads_, offloads_weights_;
  Buffer weights_, frozen_, masters_;
  Buffer mask_;                       // none: nothing is masked
  std::vector<std::int64_t> before_;  // of it: elements that stay before each window, and in all
  std::optional<FlatOptimizer> optimizer_;
};

}  // namespace lockstep
