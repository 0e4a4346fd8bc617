#include "kernels/cuda/attention/cudnn_attention_graphs.h"

namespace lockstep::cuda {

namespace {

using Extents = CudnnGraph::Extents;
using Node = CudnnGraph::Node;
constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT;

// The graph with the tensors and the masked scores that both directions have. q, o and their gradients are `queries`,
// the others `keys`.
class Builder {
 public:
  explicit Builder(const AttentionForm& form) : form_(form) {}

  CudnnGraph graph;

  Extents rows() const { return {form_.B, form_.H, form_.T, 1}; }
  Extents scores() const { return {form_.B, form_.H, form_.T, form_.S}; }
  Extents queries() const { return {form_.B, form_.H, form_.T, form_.D}; }
  Extents keys() const { return {form_.B, form_.K, form_.S, form_.D}; }
  static Extents swapped(const Extents& e) { return {e[0], e[1], e[3], e[2]}; }

  Node operand(const char* name, AttentionOperand id, const Extents& dims, const HeadStrides& s) {
    return graph.real(name, {.id = static_cast<std::int64_t>(id),
                             .type = form_.type,
                             .dims = dims,
                             .strides = {s.batch, s.head, s.token, 1}});
  }
  Node transposed(const char* name, AttentionOperand id, const HeadStrides& s) {
    return graph.real(name, {.id = static_cast<std::int64_t>(id),
                             .type = form_.type,
                             .dims = swapped(keys()),
                             .strides = {s.batch, s.head, 1, s.token}});
  }
  Node statistics(const char* name, AttentionOperand id, std::int64_t alignment) {
    return graph.real(name, {.id = static_cast<std::int64_t>(id),
                             .type = kFloat,
                             .dims = rows(),
                             .strides = {form_.H * form_.T, form_.T, 1, 1},
                             .alignment = alignment});
  }
  Node scalar(const char* name, AttentionOperand id) { return graph.scalar(name, static_cast<std::int64_t>(id)); }

  // y = mode(x) or mode(x, b), an inner fp32 tensor.
  Node apply(const char* name, cudnnPointwiseMode_t mode, const Extents& dims, Node x, std::optional<Node> b = {}) {
    const Node y = graph.inner(name, kFloat, dims);
    graph.pointwise(name, {.mode = mode, .y = y, .x = x, .b = b});
    return y;
  }
  Node product(const char* name, const Extents& dims, Node a, Node b) {
    const Node c = graph.inner(name, kFloat, dims);
    graph.matmul(name, c, a, b);
    return c;
  }
  Node sum(const char* name, cudnnReduceTensorOp_t how, Node x) {
    const Node y = graph.inner(name, kFloat, rows());
    graph.reduce(name, how, y, x);
    return y;
  }

  // Under the causal mask, the scores where the key is no later than the query, minus infinity elsewhere.
  Node masked(Node x) {
    if (!form_.causal) return x;
    const Node minus_infinity = scalar("-inf", AttentionOperand::minus_infinity);
    const Node row = graph.inner("row index", CUDNN_DATA_INT32, scores());
    graph.pointwise("row index", {.mode = CUDNN_POINTWISE_GEN_INDEX, .y = row, .x = x, .axis = 2});
    const Node column = graph.inner("column index", CUDNN_DATA_INT32, scores());
    graph.pointwise("column index", {.mode = CUDNN_POINTWISE_GEN_INDEX, .y = column, .x = x, .axis = 3});
    const Node seen = graph.inner("row >= column", CUDNN_DATA_BOOLEAN, scores());
    graph.pointwise("row >= column",
                    {.mode = CUDNN_POINTWISE_CMP_GE, .y = seen, .x = row, .b = column, .compute = CUDNN_DATA_BOOLEAN});
    const Node y = graph.inner("masked scores", kFloat, scores());
    graph.pointwise("masked scores",
                    {.mode = CUDNN_POINTWISE_BINARY_SELECT, .y = y, .x = x, .b = minus_infinity, .t = seen});
    return y;
  }

  // x (B, H, T, S) as a 16-bit tensor (B, H, S, T) that is read across.
  Node turned(const char* name, Node x) {
    const std::int64_t T = form_.T, S = form_.S;
    const Node y = graph.inner(name, form_.type, swapped(scores()), {form_.H * T * S, T * S, 1, S});
    graph.reshape(name, y, x);
    return y;
  }

  // a · b into the gradient of keys or values: those of all query heads of a group are added up.
  void key_product(const char* name, Node gradient, Node a, Node b) {
    if (form_.H == form_.K) {
      graph.matmul(name, gradient, a, b);
      return;
    }
    const Node of_queries = graph.inner(name, form_.type, {form_.B, form_.H, form_.S, form_.D});
    graph.matmul(name, of_queries, a, b);
    graph.reduce(name, CUDNN_REDUCE_TENSOR_ADD, gradient, of_queries);
  }

 private:
  const AttentionForm& form_;
};

}  // namespace

CudnnGraph attention_forward_graph(const AttentionForm& f) {
  Builder b(f);
  using Id = AttentionOperand;
  const Node q = b.operand("q", Id::q, b.queries(), f.q), k = b.transposed("k", Id::k, f.k);
  const Node v = b.operand("v", Id::v, b.keys(), f.v), o = b.operand("o", Id::o, b.queries(), f.o);
  const Node lse = b.statistics("lse", Id::lse, f.statistics_alignment);
  const Node scale = b.scalar("scale", Id::scale);

  const Node dots = b.product("q k", b.scores(), q, k);
  const Node scaled = b.apply("scores", CUDNN_POINTWISE_MUL, b.scores(), dots, scale);
  const Node masked = b.masked(scaled);
  const Node top = b.sum("top", CUDNN_REDUCE_TENSOR_MAX, masked);
  const Node below = b.apply("scores - top", CUDNN_POINTWISE_SUB, b.scores(), masked, top);
  const Node powers = b.apply("powers", CUDNN_POINTWISE_EXP, b.scores(), below);
  const Node total = b.sum("total", CUDNN_REDUCE_TENSOR_ADD, powers);
  const Node log_total = b.apply("log of total", CUDNN_POINTWISE_LOG, b.rows(), total);
  b.graph.pointwise("lse", {.mode = CUDNN_POINTWISE_ADD, .y = lse, .x = top, .b = log_total});
  const Node p = b.graph.inner("probabilities", f.type, b.scores());
  b.graph.pointwise("probabilities", {.mode = CUDNN_POINTWISE_DIV, .y = p, .x = powers, .b = total});
  b.graph.matmul("p v", o, p, v);
  return std::move(b.graph);
}

CudnnGraph attention_backward_graph(const AttentionForm& f) {
  Builder b(f);
  using Id = AttentionOperand;
  const Node q = b.operand("q", Id::q, b.queries(), f.q), k = b.transposed("k", Id::k, f.k);
  const Node v = b.transposed("v", Id::v, f.v), o = b.operand("o", Id::o, b.queries(), f.o);
  const Node d_o = b.operand("d_o", Id::d_o, b.queries(), f.d_o), dq = b.operand("dq", Id::dq, b.queries(), f.dq);
  const Node dk = b.operand("dk", Id::dk, b.keys(), f.dk), dv = b.operand("dv", Id::dv, b.keys(), f.dv);
  const Node lse = b.statistics("lse", Id::lse, f.statistics_alignment);
  const Node delta = b.statistics("delta", Id::delta, 16);
  const Node scale = b.scalar("scale", Id::scale);
  const Node one = b.scalar("one", Id::one);

  const Node outs = b.apply("d_o o", CUDNN_POINTWISE_MUL, b.queries(), d_o, o);
  const Node sums = b.sum("sums of d_o o", CUDNN_REDUCE_TENSOR_ADD, outs);
  b.graph.pointwise("delta", {.mode = CUDNN_POINTWISE_MUL, .y = delta, .x = sums, .b = one});

  const Node dots = b.product("q k", b.scores(), q, k);
  const Node scaled = b.apply("scores", CUDNN_POINTWISE_MUL, b.scores(), dots, scale);
  const Node logs = b.apply("scores - lse", CUDNN_POINTWISE_SUB, b.scores(), scaled, lse);
  const Node masked = b.masked(logs);
  const Node p = b.apply("probabilities", CUDNN_POINTWISE_EXP, b.scores(), masked);
  b.key_product("dv", dv, b.turned("p turned", p), d_o);

  const Node dp = b.product("d_o v", b.scores(), d_o, v);
  const Node centred = b.apply("dp - delta", CUDNN_POINTWISE_SUB, b.scores(), dp, delta);
  const Node weighted = b.apply("(dp - delta) p", CUDNN_POINTWISE_MUL, b.scores(), centred, p);
  const Node ds = b.apply("ds", CUDNN_POINTWISE_MUL, b.scores(), weighted, scale);
  b.key_product("dk", dk, b.turned("ds turned", ds), q);

  const Node keys = b.graph.inner("k back", kFloat, b.keys(), {f.k.batch, f.k.head, f.k.token, 1});
  b.graph.reshape("k back", keys, k);
  if (f.deterministic) {
    b.graph.matmul("dq", dq, ds, keys);
    return std::move(b.graph);
  }
  const Node accumulator = b.graph.real("accumulator", {.id = static_cast<std::int64_t>(Id::accumulator),
                                                        .type = kFloat,
                                                        .dims = b.queries(),
                                                        .strides = {f.H * f.T * f.D, f.T * f.D, f.D, 1}});
  b.graph.matmul("dq", accumulator, ds, keys);
  b.graph.pointwise("dq rounded", {.mode = CUDNN_POINTWISE_IDENTITY, .y = dq, .x = accumulator});
  return std::move(b.graph);
}

}  // namespace lockstep::cuda
