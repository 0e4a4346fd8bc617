#include "model/embedding.h"

#include "kernels/embedding.h"

namespace lockstep {

Embedding::Embedding(const Build& b, int, const Between& between)
    : Unit("embedding"), between_(between), dropout_(b.spec.dropout, "embedding") {
  const ModelNames names = model_names(b.spec);
  const auto table = [&](const std::string& name, std::int64_t rows) {
    return layout_.add({.shape = {rows, b.spec.width},
                        .pieces = {{name + ".weight", {rows, b.spec.width}}},
                        .init_std = b.spec.init_std});
  };
  table_ = table(names.embedding, b.spec.vocabulary);
  if (b.spec.positions == PositionKind::learned) positions_ = table(names.positions, b.spec.max_positions);
}

void Embedding::forward(const Call& call) const {
  const Tensor& y = call.at[between_.y];
  EmbeddingForwardArgs args{.y = y.split(0, call.batch.tokens.dim(0), call.batch.tokens.dim(1)),
                            .table = call.weight(table_),
                            .tokens = call.batch.tokens};
  if (positions_ >= 0) {
    args.position_table = call.weight(positions_);
    args.positions = call.batch.positions;
  }
  embedding_forward(args, call.stream);
  if (dropout_.active(call)) dropout_.apply(y, y, call);
}

void Embedding::backward_input(const Call& call) const {
  // Tokens have no gradient; what arrives only passes the mask that the output passed.
  const Tensor& dy = call.at[between_.dy];
  if (dropout_.active(call)) dropout_.apply(dy, dy, call);
}

void Embedding::backward_weight(const Call& call) const {
  const Tensor dy = call.at[between_.dy].split(0, call.batch.tokens.dim(0), call.batch.tokens.dim(1));
  embedding_backward(
      {.dtable = call.gradient(table_), .dy = dy, .indices = call.batch.tokens, .accumulate = call.accumulate},
      call.stream);
  if (positions_ >= 0)
    embedding_backward(
        {.dtable = call.gradient(positions_), .dy = dy, .indices = call.batch.positions, .accumulate = call.accumulate},
        call.stream);
}

}  // namespace lockstep
