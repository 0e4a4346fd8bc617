#include "model/split_linear.h"

namespace lockstep {

namespace {
LayerPlace at_end(LayerPlace place) {
  place.ends_branch = true;
  return place;
}

// What products in FP8 are told: whose inputs, or whose gradients, are gathered while they run.
Linear::Options of_columns(Linear::Options o, const TensorSplit& split) {
  o.inputs_come = split.sequence;
  return o;
}
Linear::Options of_rows(Linear::Options o, const TensorSplit& split) {
  o.gradients_come = split.sequence;
  o.gradients_alike = !split.sequence;
  return o;
}

// Rows [first, first + count) of a product.
struct Rows {
  std::int64_t first, count;
  template <class T>
  T operator()(const T& all) const {
    return all.slice(0, first, count);
  }
};
template <class Multiply>
TensorParallel::Product by_rows(Multiply&& multiply) {
  return [multiply](std::int64_t first, std::int64_t count) { multiply(Rows{first, count}); };
}
}  // namespace

ColumnLinear::ColumnLinear(UnitLayout& layout, const Build& b, const LayerPlace& at, const Linear::Options& options)
    : linear_(layout, b, at, of_columns(options, b.how.split)) {
  if (!b.how.split.sequence) return;
  const Half back = other(at.half);
  const auto slot = [&](const char* what, Phase phase, Half half) {
    return b.rows(at.unit, std::string(at.name) + what, options.in.all, phase, phase, half, half);
  };
  whole_ = slot(" of all tokens", Phase::forward, at.half);
  if (!b.recompute(at.unit).keeps_projections) whole_again_ = slot(" of all tokens again", Phase::input, back);
  d_whole_ = slot(" of all tokens, gradient", Phase::input, back);
  if (linear_.trains()) whole_inputs_ = slot(" of all tokens for weights", Phase::weight, back);
}

void ColumnLinear::project(Slot slot, Tensor y, const ProductInput& x, bool again, const Call& call) const {
  if (!call.split().sequence) return linear_.forward(y, x, call, {.again = again});
  const Tensor& whole = call.at[slot];
  linear_.begin_forward(x, call, again);
  call.tensor->gather(whole, x.x, by_rows([&](const Rows& rows) {
                        linear_.forward_rows(rows(y), rows(whole), call, {.again = again, .first = rows.first});
                      }));
}

void ColumnLinear::backward_input(Tensor dx, ConstTensor dy, const Call& call) const {
  if (call.split().size == 1 || dx.none()) return linear_.backward_input(dx, dy, call);
  const Tensor& whole = call.split().sequence ? call.at[d_whole_] : dx;
  linear_.begin_backward(dy, call);
  call.tensor->sum(dx, whole, by_rows([&](const Rows& rows) {
                     linear_.backward_input_rows(rows(whole), dy ? rows(dy) : dy, call, rows.first);
                   }));
}

ColumnLinear::Gathering ColumnLinear::begin_weight(const ProductInput& x, const Call& call) const {
  if (!call.split().sequence || !linear_.trains()) return {};
  return call.tensor->start_gather(call.at[whole_inputs_], x.x);
}

void ColumnLinear::backward_weight(ConstTensor dy, const ProductInput& x, Gathering& gathering,
                                   const Call& call) const {
  if (!linear_.trains()) return;
  TensorParallel::finish(gathering);
  linear_.backward_weight(dy, call.split().sequence ? ProductInput(call.at[whole_inputs_]) : x, call);
}

RowLinear::RowLinear(UnitLayout& layout, const Build& b, const LayerPlace& at, const Linear::Options& options)
    : linear_(layout, b, at_end(at), of_rows(options, b.how.split)) {
  if (!b.how.split.sequence) return;
  const std::int64_t width = b.spec.width;
  const std::string partial = std::string(at.name) + " in part";
  partial_ = at.half == Half::second
                 ? b.rows_at_end(at.unit, partial, width)
                 : b.rows(at.unit, partial, width, Phase::forward, Phase::forward, at.half, at.half);
  // The weight phase needs it too: where that follows, it stays.
  const Half back = other(at.half);
  const std::string name = std::string(at.name) + " of all tokens, gradient";
  const bool later = b.how.weights_later && linear_.trains();
  d_whole_ =
      b.rows(at.unit, name, width, Phase::input, later ? Phase::input : b.read_last(linear_.trains()), back, back);
  d_whole_again_ = later ? b.rows(at.unit, name + " again", width, Phase::weight, Phase::weight, back, back) : d_whole_;
}

// The first rank's part has the bias of all.
void RowLinear::forward(Tensor y, ConstTensor x, const Call& call, ConstTensor addend) const {
  const TensorSplit split = call.split();
  if (split.size == 1) return linear_.forward(y, x, call, {.addend = addend});
  LOCKSTEP_CHECK(addend.none(), "a sum over {} ranks has no addend", split.size);
  const Tensor& whole = split.sequence ? call.at[partial_] : y;
  linear_.begin_forward(x, call);
  call.tensor->sum(y, whole, by_rows([&](const Rows& rows) {
                     linear_.forward_rows(rows(whole), rows(x), call,
                                          {.with_bias = split.rank == 0, .first = rows.first});
                   }));
}

void RowLinear::backward_input(Tensor dx, ConstTensor dy, const Call& call) const {
  if (!call.split().sequence) return linear_.backward_input(dx, dy, call);
  const Tensor& whole = call.at[d_whole_];
  linear_.begin_backward(dy, call);
  call.tensor->gather(whole, dy, by_rows([&](const Rows& rows) {
                        const Tensor part = dx.none() ? dx : rows(dx);
                        linear_.backward_input_rows(part, rows(whole), call, rows.first);
                      }));
}

RowLinear::Gathering RowLinear::begin_weight(ConstTensor dy, const Call& call) const {
  if (d_whole_again_ == d_whole_ || !linear_.trains()) return {};
  return call.tensor->start_gather(call.at[d_whole_again_], dy);
}

void RowLinear::backward_weight(ConstTensor dy, ConstTensor x, Gathering& gathering, const Call& call) const {
  if (!linear_.trains()) return;
  TensorParallel::finish(gathering);
  linear_.backward_weight(call.split().sequence ? ConstTensor(call.at[d_whole_again_]) : dy, x, call);
}

}  // namespace lockstep
