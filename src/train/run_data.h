// A run's data: the batches of every step and of every evaluation, as functions of how many samples came before.
//
// The n-th sample ever consumed is a pure function of n, the seed and the data. So a resumed run, in any layout or
// batch size, sees what an uninterrupted one would. Evaluation samples are never trained on. Of a mixture, mixture.h
// says which source the n-th sample is from and how many came from it before; the source's own sampler says which of
// its samples that is. Evaluation takes sources by the first weight above 0 that each has, and their samples in order.
//
// Samples of documents come from an index (data/document_index.h): of a token file it is kept beside the file, as
// FILE.packed-T-SHARE.index, built where it is not there or of other data, and held in memory where it cannot be
// written; of text it is built with the tokens.
//
// Failure: UserError (bad_input_file) for data that cannot be read or is too small, (usage) when the model's vocabulary
// is smaller than the data's.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/document_index.h"
#include "data/mixture.h"
#include "data/sampler.h"
#include "data/synthetic_language.h"
#include "data/token_source.h"
#include "spec/run/run_spec.h"

namespace lockstep {

// What a source of a mixture gives to a run.
struct SourceUse {
  std::string name;
  std::int64_t samples = 0;     // of an epoch
  std::int64_t used = 0;        // of the run
  std::int64_t evaluation = 0;  // kept for it
  double share = 0;             // of the run's samples
  double epochs = 0;            // passes over it
};

class RunData {
 public:
  explicit RunData(const RunSpec& spec);

  // Samples [first, first + B) of those ever consumed; tokens and targets have B·T elements.
  void training_batch(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  // Samples [first, first + B) of the evaluation, always the same; they start over when there are fewer.
  void evaluation_batch(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  // The samples of an epoch, of all sources; a larger batch has some of them several times.
  std::int64_t training_samples() const;
  bool has_evaluation() const { return evaluated_.has_value(); }

  // Of a mixture's sources, over the first so many samples; empty where there is one source.
  std::vector<SourceUse> uses(std::int64_t samples) const;

  // The documents of a training sample, where it is several (Dataset::documents); of a mixture, on average.
  std::shared_ptr<const DocumentPairs> documents() const { return documents_; }
  // What a training sample is, for the useful work of a step (spec/model/model_flops.h).
  SampleWork sample_work() const;
  // That a step computes on in N training samples: T each or, without padding, as many as they have on average.
  std::int64_t tokens_of(std::int64_t samples) const;
  // Of samples that are packed, by source: what part of them are tokens, and of how many tokens documents were
  // truncated.
  std::vector<const DocumentIndex*> document_indexes() const;

  // Whether a source says which of its tokens are targets (data/token_source.h).
  bool marks_targets() const;

  std::uint64_t fingerprint() const;
  std::int64_t corpus_bytes() const { return corpus_bytes_; }  // of text and of document indexes kept in memory
  // The best loss any model can have, where it is known (synthetic data).
  std::optional<double> floor() const { return floor_; }

 private:
  // A source with its samples; a run without a mixture has one.
  struct Part {
    std::string name;
    std::unique_ptr<TokenSource> source;
    std::unique_ptr<const DocumentIndex> index;
    std::unique_ptr<Dataset> training, evaluation;
    std::optional<Sampler> sampler;
  };

  void add_synthetic(const RunSpec& spec);
  void add(const RunSpec& spec, const SourceSpec& source);
  void mix(const RunSpec& spec);
  std::shared_ptr<const DocumentPairs> mean_documents(std::int64_t samples) const;
  void fill(const Dataset& set, std::int64_t row, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;

  std::int64_t T_;
  bool varlen_;
  std::int64_t corpus_bytes_ = 0;
  std::optional<double> floor_;
  std::unique_ptr<SyntheticLanguage> language_;
  std::vector<Part> parts_;
  std::optional<Mixture> trained_, evaluated_;
  std::shared_ptr<const DocumentPairs> documents_;
};

}  // namespace lockstep
