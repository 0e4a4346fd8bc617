#include "train/run_data.h"

#include "base/error.h"
#include "base/philox.h"
#include "data/document_index_builder.h"
#include "data/packed_dataset.h"
#include "data/story_grammar.h"
#include "data/synthetic_dataset.h"
#include "data/text_source.h"
#include "data/token_file.h"
#include "data/tokenized_text.h"
#include "data/windowed_dataset.h"
#include "spec/model/vocabulary_remedy.h"

namespace lockstep {

namespace {
// Beside a token file; none: what is in memory is indexed there.
std::filesystem::path index_path(const DataSpec& d) {
  if (d.tokens.empty()) return {};
  return fmt::format("{}.{}-{}-{}.index", d.tokens, name_of(d.documents), d.seq, d.eval_share);
}
}  // namespace

RunData::RunData(const RunSpec& spec) : T_(spec.data.seq) {
  const DataSpec& d = spec.data;
  if (d.synthetic) {
    language_ = std::make_unique<SyntheticLanguage>(*d.synthetic);
    floor_ = language_->floor(T_);
    training_ = std::make_unique<SyntheticDataset>(*language_, T_, 0, SyntheticDataset::kTrainSamples);
    if (d.eval_share > 0)
      evaluation_ = std::make_unique<SyntheticDataset>(*language_, T_, SyntheticDataset::kEvalFirst,
                                                       spec.train.eval_batches * spec.train.global_batch);
  } else {
    std::string name = d.tokens;
    if (!d.tokens.empty()) {
      source_ = std::make_unique<TokenFile>(d.tokens);
    } else if (!d.tokenizer.empty()) {
      auto text = std::make_unique<TokenizedText>(d.text, d.tokenizer);
      corpus_bytes_ = text->bytes();
      source_ = std::move(text);
      name = d.text.size() == 1 ? d.text[0] : "the text";
    } else {
      auto text =
          d.example ? TextSource::of_documents(example_stories(), kStoryWindow) : std::make_unique<TextSource>(d.text);
      corpus_bytes_ = text->bytes();
      source_ = std::move(text);
      name = d.example ? "the built-in stories" : d.text.size() == 1 ? d.text[0] : "the text";
    }
    if (d.documents == Documents::stream) {
      const WindowSplit split = split_windows(name, source_->tokens(), T_, d.eval_share);
      training_ = std::make_unique<WindowedDataset>(*source_, T_, 0, split.train);
      if (split.eval > 0) evaluation_ = std::make_unique<WindowedDataset>(*source_, T_, split.train, split.eval);
    } else {
      index_ = open_document_index(index_path(d), *source_, {.kind = d.documents, .T = T_, .eval_share = d.eval_share},
                                   name);
      corpus_bytes_ += index_->bytes();
      const std::int64_t train = index_->training_samples(), eval = index_->evaluation_samples();
      training_ = std::make_unique<PackedDataset>(*source_, *index_, 0, train);
      if (eval > 0) evaluation_ = std::make_unique<PackedDataset>(*source_, *index_, train, eval);
    }
  }
  sampler_.emplace(*training_, random_key(spec.train.seed, "data order"));
  if (training_->vocabulary() > spec.model.vocabulary)
    throw UserError(ExitCode::usage,
                    fmt::format("the data has token ids up to {} and the model's vocabulary is {}",
                                training_->vocabulary() - 1, spec.model.vocabulary),
                    vocabulary_remedy(spec, training_->vocabulary()));
}

SampleWork RunData::sample_work() const {
  const auto documents = training_->documents();
  return documents ? documents->work() : SampleWork::of_sequence(T_);
}

void RunData::fill(const Dataset& set, std::int64_t row, std::int64_t index, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const auto at = static_cast<std::size_t>(row * T_), count = static_cast<std::size_t>(T_);
  set.sample(index, tokens.subspan(at, count), targets.subspan(at, count));
}

void RunData::training_batch(std::int64_t first, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < std::ssize(tokens) / T_; ++i)
    fill(*training_, i, sampler_->sample_of(first + i), tokens, targets);
}

void RunData::evaluation_batch(std::int64_t first, std::span<std::int32_t> tokens,
                               std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < std::ssize(tokens) / T_; ++i)
    fill(*evaluation_, i, (first + i) % evaluation_->samples(), tokens, targets);
}

}  // namespace lockstep
