// Continues texts with a model: its weights, and the keys and values of the tokens that each text has read.
//
// feed() reads tokens of a text after those already read and gives the logits of the next one; a token costs one row of
// each product and one row of attention. Long prompts are read `prefill` tokens at a time. The logits equal those of a
// whole forward over the same tokens, in whatever pieces they were fed, to rounding. feed_each() reads a token of each
// of several texts, of any lengths, with one pass over the weights; a text's logits are those that feed() gives.
//
// Bytes: weights in the compute type (Tag::parameter, by unit), for each text a cache of 2·L·positions·K·D elements
// (Tag::activation, by unit) and the activations of one and of `prefill` tokens, and of a token of 2, 4, 8, … texts.
// All are taken at construction; feeding allocates nothing. Memory and stream outlive it; it belongs to one thread at a
// time.
//
// The model may be split over ranks, in three ways that combine:
//   pp  Each stage has a run of units with their weights and caches; the last also has a copy of the embedding table
//       where the head is tied to it. Stages are chosen so that the fullest has as few bytes of these as possible.
//       While a stage works on a part of a prompt, the one before works on the next. Logits equal one rank's exactly.
//   tp  Each layer is split over the ranks of a stage (spec/layout/tensor_split.h): each has a part of its weights and
//       the cache of its own key/value heads.
//   cp  The cache is sharded by tokens over `cp` groups of tp ranks (spec/layout/cache_split.h): each group has all
//       weights and computes the same with them, but holds the keys and values of some tokens, at most
//       (positions - prefill) / cp + prefill of them, and attends to these.
// All ranks make the same calls and get the same logits, bit for bit. So all choose the same token and need not tell
// each other which.
//
// Failure: UserError (usage) for a token id outside the vocabulary; UserError of checkpoint or folder when loading.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/state.h"
#include "comm/single_rank.h"
#include "model/model.h"
#include "parallel/mesh_groups.h"
#include "parallel/pipeline_links.h"
#include "parallel/tensor_parallel.h"
#include "parallel/zero_shards.h"
#include "spec/layout/cache_split.h"
#include "spec/model/precision.h"
#include "spec/run/run_spec.h"
#include "tensor/memory.h"

namespace lockstep {

class MergedLora;

class Generator {
 public:
  struct Options {
    ModelSpec spec;
    std::int64_t positions;         // tokens there is room for in each text; at most the model's positions
    int texts = 1;                  // that are continued together
    std::int64_t prefill = 64;      // tokens of a prompt that are read at once
    std::int64_t score_tokens = 0;  // that score() takes at most; 0: it is not called
    Precision precision = Precision::fp32;
    // The ranks that the model is split over, on the generator's device; they outlive it. Null: one rank has all of it.
    Communicator* ranks = nullptr;
    // Stages, at most as many as units; groups per stage that the cache is sharded over; ranks per group that layers
    // are split over: rank = (stage · cp + group) · tp + its place in it.
    std::int64_t pp = 1, cp = 1;
  };

  Generator(const Options& options, Memory& memory, Stream& stream);

  // The weights are undefined until one of these has been called, or the tensors of weights() have been filled.
  // Adapters of a checkpoint are merged into the base that it names (train/merged_lora.h).
  void load(const Checkpoint& checkpoint);
  void load(const HfFolder& folder);
  void load(const MergedLora& merged);       // on the host: nothing is left of the adapters while text is made
  std::vector<StateTensor> weights() const;  // what of them is on this rank

  // Reads at least one token and gives the logits after the last of them, (V), valid until the next call. There is room
  // for length() + tokens.size() <= positions().
  std::span<const double> feed(std::span<const std::int32_t> tokens, int text = 0);
  // Reads as many of a prompt's first tokens as whole runs take, not its last, and says how many; the rest is to be
  // fed.
  std::size_t read_runs(std::span<const std::int32_t> prompt, int text = 0);
  // Reads a token of each of at least one text, none twice; gives their logits, (texts, V), valid until the next call.
  struct NextToken {
    int text;
    std::int32_t token;
  };
  std::span<const double> feed_each(std::span<const NextToken> next);
  void clear(int text = 0);  // forgets what it read

  // The loss of each target, -log of its probability after tokens[0..i], by itself: what feed() has read plays no part.
  // 1 to score_tokens of them; one of kIgnoredTarget (kernels/cross_entropy.h) has loss 0. Only where one rank has the
  // whole model.
  std::vector<double> score(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);

  std::int64_t length(int text = 0) const { return std::ssize(texts_[text].read); }
  std::span<const std::int32_t> tokens(int text = 0) const { return texts_[text].read; }  // read so far
  int texts() const { return options_.texts; }
  std::int64_t positions() const { return options_.positions; }
  const ModelSpec& spec() const { return options_.spec; }

 private:
  // The model for T tokens of each of B texts at a time, and what this stage does of a forward over them.
  struct Pass {
    Pass(const Generator& of, std::int64_t B, std::int64_t T, bool with_head);
    Model model;
    std::vector<Action> actions;
    StepActivations activations;
    Buffer tokens, positions;
  };
  struct Text {
    CacheSplit rows;                 // of every cache: which tokens are here
    std::vector<std::int32_t> read;  // with room for all positions
  };

  void take_passes();
  void take_weights();
  void take_caches();
  void take_positions();
  // Tokens of one text, or one of each of several; where a pass is for more texts, the last comes several times.
  void run(const Pass& pass, std::span<const std::int32_t> tokens, std::span<const int> texts, bool wants_logits);
  void run(const Action& action, const Pass& pass, const Batch& batch, std::span<const int> texts);
  Batch batch_of(const Pass& pass, std::span<const int> texts) const;
  std::span<const double> logits_of(const Pass& pass, std::int64_t rows);
  Tensor scores_of(const Pass& pass) const;  // of all ranks of a stage

  Options options_;
  Memory& memory_;
  Stream& stream_;
  DType dtype_, sums_;
  SingleRank alone_;
  LayoutSpec layout_;
  MeshGroups mesh_;
  TensorParallel tensor_;
  PipelineLinks links_;
  StepShape shape_;  // of a forward: which units are here
  Pass one_;
  std::list<Pass> reading_;     // long runs first; without a head: the last token is always read by itself
  std::list<Pass> together_;    // few texts first
  std::optional<Pass> scored_;  // with a head and its losses
  Buffer targets_, losses_, scale_;
  UnitLayout borrowed_;                               // the tied weight where the unit that owns it is another stage's
  std::map<int, ZeroShard> weights_;                  // by unit: of those that are here, and of what they borrow
  std::map<int, UnitTensors> units_;                  // views of them
  std::vector<Buffer> cached_;                        // of each block that is here
  std::map<int, std::vector<KeyValueCache>> caches_;  // by unit and text
  std::vector<KeyValueCache> used_caches_;            // of the call at hand
  Buffer positions_, cos_, sin_;
  Buffer scores_;  // all ranks' columns, rank by rank; after the vocabulary there may be padding
  std::vector<double> logits_, wide_scores_;
  std::vector<float> narrow_scores_;  // where they land when they are fp32
  std::vector<Text> texts_;
};

// UserError (usage) naming the first id that the model does not have.
void require_in_vocabulary(std::span<const std::int32_t> tokens, const ModelSpec& spec);

}  // namespace lockstep
