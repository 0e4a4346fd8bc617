// A parallel layout as plain data: the sizes of the mesh (dp, pp, cp, tp) and the settings of each technique.
//
// The names are those of docs/design.md. No setting here changes what is learned, but for a schedule without a flush
// (unflushed()), which does so on purpose. Settings that keep the order of sums (overlap, bucket, embedding_gradient,
// dp_kind, servers, zero, reshard, prefetch, wrap, shard in powers of two, pp and all that belongs to it) do not change
// a bit.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "spec/layout/context_split.h"
#include "spec/layout/cp_kind.h"
#include "spec/layout/stage_rule.h"
#include "spec/layout/tensor_split.h"
#include "spec/layout/wrap_rule.h"
#include "spec/pipeline/schedule.h"

namespace lockstep {

struct ModelSpec;

enum class Switch { off, on };
inline constexpr std::array kSwitches{Switch::off, Switch::on};
constexpr std::string_view name_of(Switch s) { return s == Switch::on ? "on" : "off"; }

enum class DpKind {
  ddp,      // every rank holds everything; gradients are summed over ranks, and every rank updates
  central,  // rank 0 holds the data and the optimizer, deals out tokens and weights, and computes every loss
  server,   // ranks apart hold the optimizer, take the gradients and give out the weights; the others compute
};
inline constexpr std::array kDpKinds{DpKind::ddp, DpKind::central, DpKind::server};
constexpr std::string_view name_of(DpKind kind) {
  constexpr std::string_view kNames[] = {"ddp", "central", "server"};
  return kNames[static_cast<int>(kind)];
}

// When gradients are summed over the ranks: once per step, after each rank has added up its micro-batches, or after
// every micro-batch, so that no rank keeps a whole gradient.
enum class GradSync { step, micro };
inline constexpr std::array kGradSyncs{GradSync::step, GradSync::micro};
constexpr std::string_view name_of(GradSync sync) { return sync == GradSync::step ? "step" : "micro"; }

// What happens to gathered weights after a forward: they are released, or kept until the backward.
enum class Reshard { forward, never };
inline constexpr std::array kReshards{Reshard::forward, Reshard::never};
constexpr std::string_view name_of(Reshard reshard) { return reshard == Reshard::forward ? "forward" : "never"; }

// The order of sums over ranks and the route of the messages (comm/message.h, Algorithm).
enum class ReduceKind { canonical, ring, tree, native };
inline constexpr std::array kReduceKinds{ReduceKind::canonical, ReduceKind::ring, ReduceKind::tree, ReduceKind::native};
constexpr std::string_view name_of(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"canonical", "ring", "tree", "native"};
  return kNames[static_cast<int>(kind)];
}

// Which rows of the embedding's gradient are summed over ranks: all, those of tokens that some rank has in the step, or
// these where they are at most half (parallel/embedding_rows.h).
enum class EmbeddingGradient { dense, rows, automatic };
inline constexpr std::array kEmbeddingGradients{EmbeddingGradient::dense, EmbeddingGradient::rows,
                                                EmbeddingGradient::automatic};
constexpr std::string_view name_of(EmbeddingGradient which) {
  constexpr std::string_view kNames[] = {"dense", "rows", "auto"};
  return kNames[static_cast<int>(which)];
}

// Which tokens of a sample are whose (spec/layout/context_split.h).
enum class CpOrder { zigzag, plain };
inline constexpr std::array kCpOrders{CpOrder::zigzag, CpOrder::plain};
constexpr std::string_view name_of(CpOrder order) { return order == CpOrder::zigzag ? "zigzag" : "plain"; }

struct LayoutSpec {
  std::int64_t dp = 1;  // ranks, or groups of pp · cp · tp ranks, that each take a part of the global batch
  std::int64_t pp = 1;  // stages, of cp · tp ranks each, that the model's layers are split over
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  // in which order stages work
  std::int64_t chunks = usual_chunks(schedule);       // parts of the model that a stage has
  StageRule stages = {};                              // where chunks end: by cost, evenly, or layers by hand, "3+5"
  std::string schedule_file = {};                     // a schedule written by hand, in the place of `schedule`
  std::int64_t cp = 1;                                // ranks, or groups of tp ranks, that every sample is split over
  CpKind cp_kind = kRing;                             // cp > 1: keys and values travel, heads do ("ulysses"), or "2x3"
  CpOrder cp_order = CpOrder::zigzag;                 // where keys and values travel
  std::int64_t tp = 1;                                // ranks that every layer is split over
  Switch sp = usual_sp(tp);    // tp > 1: what is between the products of a layer is split too, by tokens
  std::int64_t tp_chunks = 4;  // tp > 1: pieces, at most, in which tokens are exchanged beside a product
  std::int64_t micro = 1;      // micro-batches that a rank's part is split into
  DpKind dp_kind = DpKind::ddp;
  std::int64_t servers = 0;  // dp_kind server: ranks that hold the optimizer; whole rows of pp · cp · tp of them
  std::int64_t zero = 0;     // what is sharded: 1 optimizer state, 2 and gradients, 3 and weights
  GradSync grad_sync = usual_sync(zero);
  Switch overlap = Switch::on;                                      // messages run while something is computed
  EmbeddingGradient embedding_gradient = EmbeddingGradient::dense;  // grad_sync = step
  std::int64_t bucket = 25;  // zero = 0: MiB of gradients that are summed at once; 0 = each parameter by itself
  Reshard reshard = Reshard::forward;  // zero = 3
  std::int64_t prefetch = 1;           // zero = 3: units, or bundles of them, that are gathered before they are needed
  WrapRule wrap = {};                  // zero = 3: what is gathered, and its gradients reduced, in one call
  std::int64_t shard = 0;              // zero > 0: ranks that one copy is sharded over; 0 = all
  Switch uneven = Switch::off;         // parts of the batch may differ by `micro` samples
  ReduceKind reduce = ReduceKind::canonical;
  bool operator==(const LayoutSpec&) const = default;

  static constexpr GradSync usual_sync(std::int64_t zero) { return zero >= 2 ? GradSync::micro : GradSync::step; }
  static constexpr Switch usual_sp(std::int64_t tp) { return tp > 1 ? Switch::on : Switch::off; }
  std::int64_t line() const { return pp * cp * tp; }  // ranks of one dp rank
  std::int64_t ranks() const { return dp * line() + servers; }
  // Parameter servers come after all ranks that compute: a row of them has the mesh's pp, cp and tp, like one more dp
  // rank, and each serves the ranks of its own stage and tp rank.
  bool serves(std::int64_t rank) const { return rank >= dp * line(); }
  // A rank's place: tp ranks are neighbours, then come cp, pp and dp. The dp rank of a server is dp or more.
  std::int64_t dp_rank(std::int64_t rank) const { return rank / (pp * cp * tp); }
  std::int64_t stage(std::int64_t rank) const { return rank / (cp * tp) % pp; }
  std::int64_t cp_rank(std::int64_t rank) const { return rank / tp % cp; }
  std::int64_t tp_rank(std::int64_t rank) const { return rank % tp; }
  TensorSplit tensor_split(std::int64_t rank) const {
    return {
        .rank = tp_rank(rank), .size = tp, .sequence = tp > 1 && sp == Switch::on, .pieces = tp > 1 ? tp_chunks : 1};
  }
  ContextSplit context_split(std::int64_t rank) const;
  // Ranks that have the same weights and other tokens: parts of the batch, and of samples. Gradients are summed and
  // ZeRO shards over them.
  std::int64_t replicas() const { return dp * cp; }
  std::int64_t replica(std::int64_t rank) const { return dp_rank(rank) * cp + cp_rank(rank); }
  // And with the servers of these weights, which come after them.
  std::int64_t holders() const { return replicas() + servers / (pp * tp); }
  // Ranks that state is sharded over; 1: each that has any holds all of it.
  std::int64_t shards() const {
    if (dp_kind == DpKind::server) return servers / (pp * tp);
    return zero == 0 ? 1 : shard > 0 ? shard : replicas();
  }
  bool cuts_weights() const { return zero == 3 && shards() > 1; }
  // The pipeline is not emptied at the end of a step (spec/pipeline/pipedream.h).
  bool unflushed() const { return schedule_file.empty() && !flushes(schedule); }
  // Gradients are passed on after each micro-batch.
  bool passes_on() const { return replicas() > 1 && grad_sync == GradSync::micro; }
};

// The samples of a global batch that belong to one data-parallel rank: whole multiples of `micro`, as even as can be,
// the first ranks having more; a server has none. Of a batch that validate() has let pass.
struct Share {
  std::int64_t first, count;
};
constexpr Share share_of(std::int64_t global_batch, const LayoutSpec& layout, std::int64_t dp_rank) {
  if (dp_rank >= layout.dp) return {global_batch, 0};
  const std::int64_t rounds = global_batch / layout.micro;  // samples of one micro-batch, over all ranks
  const std::int64_t each = rounds / layout.dp, more = rounds % layout.dp;
  const auto least = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  return {(each * dp_rank + least(dp_rank, more)) * layout.micro, (each + (dp_rank < more ? 1 : 0)) * layout.micro};
}

// Whether the layout is valid and fits a batch of this many samples; if not, `fail` is given the problem and a remedy,
// and throws.
using LayoutFault = std::function<void(std::string_view key, const std::string& problem, const std::string& remedy)>;
void check_layout(std::int64_t global_batch, const LayoutSpec& layout, const LayoutFault& fail);
// Whether the layers of that model can be split so.
void check_tensor_layout(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail);
// Whether samples of `seq` tokens can, with the heads that a rank has.
void check_context_layout(const ModelSpec& model, std::int64_t seq, const LayoutSpec& layout, const LayoutFault& fail);

// Whether the blocks that go in one call are this model's.
void check_wrap(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail);

// Whether the model's layers can be split into stages so, and the schedule is valid.
void check_pipeline_layout(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail);
// All of them.
void check_model_layout(const ModelSpec& model, std::int64_t seq, const LayoutSpec& layout, const LayoutFault& fail);

// Gives the layout this number of ranks in all: dp = (ranks - servers) / (pp · cp · tp). Where these do not divide the
// ranks `fail` is told, with numbers that fit as the option has them ("--ranks 4"), and if it returns nothing is
// changed: false.
bool spread_over(LayoutSpec& layout, std::int64_t ranks, std::string_view option, const LayoutFault& fail);

// The schedule that the layout names. UserError (usage) where a file is none, or one of another shape.
PipelineSchedule schedule_of(const LayoutSpec& layout);

// A layout as the command line has it, "dp=2,micro=3,overlap=off", which parse_layout (spec/layout/layout_toml.h)
// reads: what differs from the defaults; "dp=1" where nothing does.
std::string to_text(const LayoutSpec& layout);

}  // namespace lockstep
