// A run's data: the batches of every step and of every evaluation, as functions of how many samples came before.
//
// The n-th sample ever consumed is a pure function of n, the seed and the data. So a resumed run, in any layout or
// batch size, sees what an uninterrupted one would. Evaluation samples are never trained on.
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

#include "data/dataset.h"
#include "data/document_index.h"
#include "data/sampler.h"
#include "data/synthetic_language.h"
#include "data/token_source.h"
#include "spec/run/run_spec.h"

namespace lockstep {

class RunData {
 public:
  explicit RunData(const RunSpec& spec);

  // Samples [first, first + B) of those ever consumed; tokens and targets have B·T elements.
  void training_batch(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  // Samples [first, first + B) of the evaluation, always the same; they start over when there are fewer.
  void evaluation_batch(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  // The samples of an epoch; a larger batch has some of them several times.
  std::int64_t training_samples() const { return training_->samples(); }
  bool has_evaluation() const { return evaluation_ != nullptr; }

  // The documents of a training sample, where it is several (Dataset::documents).
  std::shared_ptr<const DocumentPairs> documents() const { return training_->documents(); }
  // What a training sample is, for the useful work of a step (spec/model/model_flops.h).
  SampleWork sample_work() const;
  // Of samples that are packed: what part of them are tokens, and of how many tokens documents were truncated.
  const DocumentIndex* document_index() const { return index_.get(); }

  std::uint64_t fingerprint() const { return training_->fingerprint(); }
  std::int64_t corpus_bytes() const { return corpus_bytes_; }  // of text and of a document index kept in memory
  // The best loss any model can have, where it is known (synthetic data).
  std::optional<double> floor() const { return floor_; }

 private:
  void fill(const Dataset& set, std::int64_t row, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;

  std::int64_t T_;
  std::int64_t corpus_bytes_ = 0;
  std::optional<double> floor_;
  std::unique_ptr<TokenSource> source_;
  std::unique_ptr<const DocumentIndex> index_;
  std::unique_ptr<SyntheticLanguage> language_;
  std::unique_ptr<Dataset> training_, evaluation_;
  std::optional<Sampler> sampler_;
};

}  // namespace lockstep
