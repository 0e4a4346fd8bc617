#include "model/embedding.h"

#include "kernels/embedding.h"

namespace lockstep {

Embedding::Embedding(const Build& b, int unit, const Between& between)
    : Unit("embedding"),
      between_(between),
      dropout_(b.spec.dropout, "embedding"),
      vocabulary_(b.how.split.part(b.spec.vocabulary)) {
  const std::int64_t C = b.spec.width;
  const ModelNames names = model_names(b.spec);
  table_ = layout_.add({.shape = {vocabulary_.each, C},
                        .pieces = {rows_of({names.embedding + ".weight", {b.spec.vocabulary, C}}, vocabulary_)},
                        .init_std = b.spec.init_std,
                        .frozen = b.frozen()});
  if (b.spec.positions == PositionKind::learned)
    positions_ =
        layout_.add({.shape = {b.spec.max_positions, C},
                     .pieces = {b.on_all_ranks({names.positions + ".weight", {b.spec.max_positions, C}}, false)},
                     .init_std = b.spec.init_std,
                     .frozen = b.frozen()});
  if (!b.how.split.sequence) return;
  partial_ = b.rows(unit, "embedding in part", C, Phase::forward, Phase::forward);
  d_whole_ = b.rows(unit, "embedding of all tokens, gradient", C, Phase::weight, Phase::weight);
}

void Embedding::forward(const Call& call) const {
  const Tensor& y = call.at[between_.y];
  const TensorSplit split = call.split();
  const Tensor& all = split.sequence ? call.at[partial_] : y;
  EmbeddingForwardArgs args{.y = all.split(0, call.batch.tokens.dim(0), call.batch.tokens.dim(1)),
                            .table = call.weight(table_),
                            .tokens = call.batch.tokens,
                            .part = split.size > 1,
                            .first = vocabulary_.first};
  if (positions_ >= 0 && split.rank == 0) {
    args.position_table = call.weight(positions_);
    args.positions = call.batch.document_positions();
  }
  embedding_forward(args, call.stream);
  if (split.size > 1) call.tensor->sum(y, all);
  if (dropout_.active(call)) dropout_.apply(y, y, call);
}

void Embedding::backward_input(const Call& call) const {
  // Tokens have no gradient; what arrives only passes the mask that the output passed.
  const Tensor& dy = call.at[between_.dy];
  if (dropout_.active(call)) dropout_.apply(dy, dy, call);
}

void Embedding::backward_weight(const Call& call) const {
  const TensorSplit split = call.split();
  Tensor all = call.at[between_.dy];
  if (split.sequence) {
    all = call.at[d_whole_];
    call.tensor->gather(all, call.at[between_.dy]);
  }
  const Tensor dy = all.split(0, call.batch.tokens.dim(0), call.batch.tokens.dim(1));
  embedding_backward({.dtable = call.gradient(table_),
                      .dy = dy,
                      .indices = call.batch.tokens,
                      .accumulate = call.accumulate,
                      .part = split.size > 1,
                      .first = vocabulary_.first},
                     call.stream);
  if (positions_ >= 0)
    embedding_backward({.dtable = call.gradient(positions_),
                        .dy = dy,
                        .indices = call.batch.document_positions(),
                        .accumulate = call.accumulate},
                       call.stream);
}

}  // namespace lockstep
