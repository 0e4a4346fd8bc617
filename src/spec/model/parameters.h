// The parameters of one unit of the model (the embedding, a block, the head) and their places in its flat buffers.
//
// A stored parameter is what a kernel multiplies with. It consists of one or more logical tensors, the ones Hugging
// Face names, each a contiguous range of it (a fused query/key/value matrix holds three); under tensor parallelism it
// holds parts of them (spec/layout/tensor_split.h). A unit keeps all its parameters in one flat buffer: matrices first,
// then vectors, each starting at a multiple of 256 elements. So any shard that starts and ends at such a multiple holds
// whole blocks of the norm, and weight decay, which is for matrices only, ends at one boundary.
//
// Frozen parameters (docs/lora.md) are in a flat buffer of their own: they have a weight and nothing else, so all that
// is said of the other buffer, its shards, gradients and state, is of what is trained alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/strided_range.h"

namespace lockstep {

inline constexpr std::int64_t kParameterAlignment = 256;

// A tensor by the name the world knows it by.
struct LogicalTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements() const;
};

// The same elements here, in a flat buffer, and there, in a logical tensor: as many rows of the same length in both.
struct Run {
  StridedRange here, there;
  static Run flat(std::int64_t here, std::int64_t there, std::int64_t count) {
    return {{here, count, count, 1}, {there, count, count, 1}};
  }
  std::int64_t rows() const { return here.rows; }
  std::int64_t row() const { return here.row; }
  std::int64_t elements() const { return here.elements(); }
  bool operator==(const Run&) const = default;
};
// Rows that follow each other on both sides are one.
Run joined(Run run);
// Its elements within [begin, end) here: up to three runs.
std::vector<Run> clipped(const Run& run, std::int64_t begin, std::int64_t end);

// What a stored parameter holds of a logical tensor: all of it, or, under tensor parallelism, a part.
struct ParameterPiece : LogicalTensor {
  std::optional<std::vector<Run>> runs = {};  // none: all, in order, after the piece before
  // Of ranks that have the same elements, this one answers for them: in the gradient's norm, and when they are saved.
  bool counted = true;
  // The number of consecutive tp ranks that have the same elements, each with a part of their gradient.
  std::int64_t partial_over = 1;
};

enum class Init { normal, zeros, ones };

struct StoredParameter {
  std::vector<std::int64_t> shape;
  std::vector<ParameterPiece> pieces = {};  // what is of no piece is padding. None: see `tied`.
  Init init = Init::normal;
  double init_std = 0;
  bool tied =
      false;  // only a gradient lives here: the weight is another unit's, and the gradient is added to that one's
  bool frozen = false;  // no gradient, and no update; of a tied one: nothing is here at all

  std::int64_t elements() const;
  std::vector<Run> runs_of(std::size_t piece) const;  // `here` being from the parameter's beginning
};

class UnitLayout {
 public:
  explicit UnitLayout(std::string name) : name_(std::move(name)) {}

  // Adds a parameter and returns its index. Places of those added before may move: ask for them when all are there.
  int add(StoredParameter parameter);

  const std::string& name() const { return name_; }
  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  // Of a parameter in its flat buffer, in elements.
  std::int64_t offset(int index) const { return offsets_.at(index); }
  std::int64_t elements() const { return elements_; }  // of the flat buffer, padding included
  std::int64_t decayed() const { return decayed_; }    // how many elements from the start on have weight decay
  // The tied parameters come last of all and have no weight, so the buffers of weights and state end here.
  std::int64_t owned() const { return owned_; }
  std::int64_t frozen() const { return frozen_; }  // elements of the other flat buffer, padding included
  bool trains() const { return elements_ > 0; }

 private:
  void place();

  std::string name_;
  std::vector<StoredParameter> parameters_;
  std::vector<std::int64_t> offsets_;
  std::int64_t elements_ = 0, decayed_ = 0, owned_ = 0, frozen_ = 0;
};

}  // namespace lockstep
