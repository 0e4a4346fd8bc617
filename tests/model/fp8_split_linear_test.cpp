// A layer that ranks split has, in FP8, the scales of its whole tensors: what no sum over ranks enters has the bits of
// one rank's products. Parts of ranks differ in size by 2^13, so that a scale of a part alone would round otherwise.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "comm/threads/run_ranks.h"
#include "model/split_linear.h"
#include "support/tensor_box.h"
#include "tensor/cpu/stream.h"

namespace lockstep::tests {
namespace {

using Matrix = std::vector<double>;

struct SplitCase {
  bool columns;  // outputs are split; otherwise inputs
  bool sequence;
  std::int64_t ranks;
  bool in_out = false;
};

constexpr std::int64_t kWidth = 32, kEach = 48;  // what is whole, and a rank's part of what is split
constexpr double kSmall = 0x1p-13;

std::int64_t tokens_of(const SplitCase& c) { return 32 * c.ranks; }
// The first rank has large numbers, the others small ones.
double of_token(const SplitCase& c, std::int64_t n) { return c.sequence && n / 16 % c.ranks > 0 ? kSmall : 1; }
double of_part(std::int64_t i) { return i >= kEach ? kSmall : 1; }

// Of x and dy the wide one has a column per part of all ranks, the narrow one is what enters or leaves whole.
struct SplitGiven {
  Matrix wide, narrow, weight;  // (N, kEach · ranks), (N, kWidth), (split, whole)

  explicit SplitGiven(const SplitCase& c) {
    const std::int64_t all = kEach * c.ranks;
    for (std::int64_t i = 0; i < tokens_of(c) * all; ++i) wide.push_back(normal(1)(1, i) * of_part(i % all));
    for (std::int64_t i = 0; i < tokens_of(c) * kWidth; ++i)
      narrow.push_back(normal(1)(2, i) * of_token(c, i / kWidth));
    for (std::int64_t i = 0; i < all * kWidth; ++i) weight.push_back(normal(1)(3, i) * of_part(i / kWidth));
  }
};

// Results of a rank: of its own rows, or its own part.
struct SplitResults {
  Matrix y, dx, dweight;
};

class SplitLayer {
 public:
  SplitLayer(const SplitCase& c, const SplitGiven& given, const TensorSplit& split, const TensorParallel* tensor)
      : c_(c), given_(given), split_(split), tensor_(tensor), part_(split.part(kEach * c.ranks)) {
    spec_.width = kWidth;
    const Build build{.spec = spec_,
                      .B = 1,
                      .T = tokens_of(c),
                      .dtype = DType::bf16,
                      .slots = slots_,
                      .how = {.split = split, .fp8 = true}};
    const LayerPlace place{1, Half::first, "layer"};
    const Part whole = Part::whole(kWidth);
    if (c.columns)
      column_.emplace(layout_, build, place,
                      Linear::Options{.in = whole, .in_out = c.in_out, .pieces = {{"one", {part_}}}});
    else
      row_.emplace(layout_, build, place,
                   Linear::Options{.in = part_, .in_out = c.in_out, .pieces = {{"one", {whole}}}});
  }

  SplitResults run() {
    const std::int64_t N = tokens_of(c_), own = split_.own_rows(N), each = part_.each;
    const bool part_first = c_.columns != c_.in_out;  // of the weight as it is stored
    Matrix weight;
    for (std::int64_t i = 0; i < each * kWidth; ++i) {
      const std::int64_t part = part_first ? i / kWidth : i % each, whole = part_first ? i % kWidth : i / each;
      weight.push_back(given_.weight[static_cast<std::size_t>((part_.first + part) * kWidth + whole)]);
    }
    Matrix wide, narrow;
    for (std::int64_t i = 0; i < N * each; ++i)
      wide.push_back(given_.wide[static_cast<std::size_t>(i / each * part_.all + part_.first + i % each)]);
    for (std::int64_t i = 0; i < own * kWidth; ++i)
      narrow.push_back(given_.narrow[static_cast<std::size_t>(row_of(i / kWidth) * kWidth + i % kWidth)]);
    const Shape stored = part_first ? Shape{each, kWidth} : Shape{kWidth, each};
    const Tensor wide_in = box_.make(DType::bf16, {N, each}, wide),
                 narrow_in = box_.make(DType::bf16, {own, kWidth}, narrow),
                 wide_out = box_.make(DType::bf16, {N, each}), narrow_out = box_.make(DType::bf16, {own, kWidth}),
                 dweight = box_.make(DType::f32, stored);
    tensors_ = {{box_.make(DType::bf16, stored, weight)}, {dweight}};
    const StepShape shape{.units = 3, .micro = 1};
    StepActivations activations(slots_, serial_step(shape), shape, *memory_);
    Batch batch;
    batch.training = true;
    const Call call{
        .unit = tensors_, .at = activations.of(0), .batch = batch, .stream = box_.stream(), .tensor = tensor_};
    if (c_.columns) {
      column_->forward(wide_out, narrow_in, call);
      column_->backward_input(narrow_out, wide_in, call);
      auto gathering = column_->begin_weight(narrow_in, call);
      column_->backward_weight(wide_in, narrow_in, gathering, call);
    } else {
      row_->forward(narrow_out, wide_in, call);
      row_->backward_input(wide_out, narrow_in, call);
      auto gathering = row_->begin_weight(narrow_in, call);
      row_->backward_weight(narrow_in, wide_in, gathering, call);
    }
    const Matrix of_wide = TensorBox::read(wide_out), of_narrow = TensorBox::read(narrow_out);
    return {c_.columns ? of_wide : of_narrow, c_.columns ? of_narrow : of_wide, TensorBox::read(dweight)};
  }

  // Where in the whole what this rank has is.
  std::int64_t row_of(std::int64_t own) const {
    for (std::int64_t p = 0;; ++p)
      if (const auto piece = split_.piece(tokens_of(c_), p); own < piece.own_first + piece.own_count)
        return piece.mine + own - piece.own_first;
  }
  const Part& part() const { return part_; }

 private:
  SplitCase c_;
  const SplitGiven& given_;
  TensorSplit split_;
  const TensorParallel* tensor_;
  Part part_;
  ModelSpec spec_;
  Slots slots_;
  UnitLayout layout_{"layer"};
  std::optional<ColumnLinear> column_;
  std::optional<RowLinear> row_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  TensorBox box_;
  UnitTensors tensors_;
};

TEST(Fp8SplitLayers, HaveTheScalesOfTheirWholeTensors) {
  for (const bool columns : {true, false})
    for (const bool sequence : {false, true})
      for (const std::int64_t ranks : {2, 3})
        for (const bool in_out : {false, true}) {
          const SplitCase c{columns, sequence, ranks, in_out};
          const SplitGiven given(c);
          const SplitResults one = SplitLayer(c, given, {}, nullptr).run();
          run_ranks(static_cast<int>(ranks), [&](std::unique_ptr<Communicator> group) {
            const TensorSplit split{
                .rank = group->rank(), .size = ranks, .sequence = sequence, .pieces = 4, .together = 16};
            const TensorParallel tensor(*group, {.split = split});
            SplitLayer layer(c, given, split, &tensor);
            const SplitResults here = layer.run();
            const Part& part = layer.part();
            const std::string what = fmt::format("{} split over {} ranks{}{}", columns ? "outputs" : "inputs", ranks,
                                                 sequence ? ", sequence" : "", in_out ? ", (in, out)" : "");
            const Matrix &wide = columns ? here.y : here.dx, &wide_of_one = columns ? one.y : one.dx;
            for (std::size_t i = 0; i < wide.size(); ++i) {
              const auto at = static_cast<std::int64_t>(i);
              ASSERT_EQ(wide[i], wide_of_one[static_cast<std::size_t>(at / kEach * part.all + part.first + at % kEach)])
                  << what << ", " << i;
            }
            const bool part_first = columns != in_out;
            for (std::size_t i = 0; i < here.dweight.size(); ++i) {
              const auto at = static_cast<std::int64_t>(i);
              const std::int64_t of_part = part.first + (part_first ? at / kWidth : at % kEach),
                                 of_whole = part_first ? at % kWidth : at / kEach;
              ASSERT_EQ(here.dweight[i], one.dweight[static_cast<std::size_t>(
                                             part_first ? of_part * kWidth + of_whole : of_whole * part.all + of_part)])
                  << what << ", " << i;
            }
            // A sum of parts that were rounded to bf16.
            const Matrix &narrow = columns ? here.dx : here.y, &narrow_of_one = columns ? one.dx : one.y;
            double most = 0;
            for (const double v : narrow_of_one) most = std::max(most, std::abs(v));
            for (std::size_t i = 0; i < narrow.size(); ++i) {
              const auto at = static_cast<std::int64_t>(i);
              ASSERT_NEAR(narrow[i],
                          narrow_of_one[static_cast<std::size_t>(layer.row_of(at / kWidth) * kWidth + at % kWidth)],
                          0x1p-7 * most)
                  << what << ", " << i;
            }
          });
        }
}

}  // namespace
}  // namespace lockstep::tests
