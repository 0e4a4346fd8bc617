#include "train/run_data.h"

#include <algorithm>
#include <cmath>

#include "base/checksum.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/document_index_builder.h"
#include "data/open_tokens.h"
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

struct OpenedSource {
  std::unique_ptr<TokenSource> tokens;
  std::int64_t bytes = 0;  // of memory
  std::string name;        // what messages call it
};

// Ids are kept with the tokenizer that is named beside them, so they must be its.
void require_vocabulary_of(const std::filesystem::path& tokenizer, const DocumentTokens& tokens,
                           const std::string& name) {
  const std::int64_t own = Tokenizer::load(tokenizer).vocabulary();
  if (dynamic_cast<const TokenFile*>(&tokens) && tokens.vocabulary() != own)
    throw UserError(
        ExitCode::usage,
        fmt::format("{} has a vocabulary of {}, and data.tokenizer one of {}", name, tokens.vocabulary(), own),
        "name the tokenizer that the file was made with, or leave data.tokenizer out");
}

OpenedSource open_source(const RunSpec& spec, const SourceSpec& source) {
  if (!source.tokens.empty()) {
    auto tokens = open_tokens(source.tokens, source.token_type, spec.model.vocabulary);
    if (!spec.data.tokenizer.empty()) require_vocabulary_of(spec.data.tokenizer, *tokens, source.tokens);
    return {std::move(tokens), 0, source.tokens};
  }
  const std::string name = source.text.size() == 1 ? source.text[0] : "the text";
  if (!spec.data.tokenizer.empty()) {
    auto text = std::make_unique<TokenizedText>(source.text, spec.data.tokenizer);
    const std::int64_t bytes = text->bytes();
    return {std::move(text), bytes, name};
  }
  auto text = source.text.empty() ? TextSource::of_documents(example_stories(), kStoryWindow)
                                  : std::make_unique<TextSource>(source.text);
  const std::int64_t bytes = text->bytes();
  return {std::move(text), bytes, source.text.empty() ? "the built-in stories" : name};
}

// Beside a token file; none: what is in memory is indexed there.
std::filesystem::path index_path(const DataSpec& d, const SourceSpec& source) {
  if (source.tokens.empty()) return {};
  return fmt::format("{}.{}-{}-{}.index", source.tokens, name_of(d.documents), d.seq, source.eval_share);
}

// Weights are shares of samples, which have one length: a share of documents is made one of tokens by how long the
// source's documents are.
WeightSteps weight_in_tokens(const SourceSpec& source, const TokenSource& tokens) {
  const auto* file = dynamic_cast<const DocumentTokens*>(&tokens);
  const auto* text = dynamic_cast<const TextSource*>(&tokens);
  const auto* encoded = dynamic_cast<const TokenizedText*>(&tokens);
  const std::int64_t documents = file      ? file->documents()
                                 : text    ? text->documents()
                                 : encoded ? encoded->documents()
                                           : 0;
  if (documents == 0)
    throw UserError(
        ExitCode::usage,
        fmt::format("data.weigh_by is \"documents\", and {} does not say where its documents end", source.tokens),
        "use data.weigh_by = \"tokens\", or a token file of `lockstep tokenize`");
  WeightSteps weight = source.weight;
  const double length = static_cast<double>(tokens.tokens()) / static_cast<double>(documents);
  for (WeightSteps::Step& step : weight.steps) step.weight *= length;
  return weight;
}

// Evaluation does not change with the training: each source has the first weight above 0 that it is given.
WeightSteps first_weight(const WeightSteps& weight) {
  WeightSteps constant;
  constant.steps[0].weight = 0;
  for (const WeightSteps::Step& step : weight.steps)
    if (constant.steps[0].weight == 0) constant.steps[0].weight = step.weight;
  return constant;
}

}  // namespace

RunData::RunData(const RunSpec& spec) : T_(spec.data.seq), varlen_(spec.data.documents == Documents::varlen) {
  const DataSpec& d = spec.data;
  if (d.synthetic) {
    add_synthetic(spec);
  } else if (d.sources.empty()) {
    SourceSpec only{.name = "", .text = d.text, .tokens = d.tokens, .token_type = d.token_type, .weight = {}};
    only.eval_share = d.eval_share;
    add(spec, only);
  } else {
    for (const SourceSpec& source : d.sources) add(spec, source);
  }
  mix(spec);
  for (const Part& part : parts_)
    if (const std::int64_t needed = part.training->vocabulary(); needed > spec.model.vocabulary)
      throw UserError(ExitCode::usage,
                      fmt::format("the data has token ids up to {} and the model's vocabulary is {}", needed - 1,
                                  spec.model.vocabulary),
                      vocabulary_remedy(spec, needed));
}

void RunData::add_synthetic(const RunSpec& spec) {
  language_ = std::make_unique<SyntheticLanguage>(*spec.data.synthetic);
  floor_ = language_->floor(T_);
  Part& part = parts_.emplace_back();
  part.training = std::make_unique<SyntheticDataset>(*language_, T_, 0, SyntheticDataset::kTrainSamples);
  if (spec.data.eval_share > 0)
    part.evaluation = std::make_unique<SyntheticDataset>(*language_, T_, SyntheticDataset::kEvalFirst,
                                                         spec.train.eval_batches * spec.train.global_batch);
  part.sampler.emplace(*part.training, random_key(spec.train.seed, "data order"));
}

void RunData::add(const RunSpec& spec, const SourceSpec& source) {
  OpenedSource opened = open_source(spec, source);
  corpus_bytes_ += opened.bytes;
  Part& part = parts_.emplace_back();
  part.name = source.name;
  part.source = std::move(opened.tokens);
  if (spec.data.documents == Documents::stream) {
    const WindowSplit split = split_windows(opened.name, part.source->tokens(), T_, source.eval_share);
    part.training = std::make_unique<WindowedDataset>(*part.source, T_, 0, split.train);
    if (split.eval > 0) part.evaluation = std::make_unique<WindowedDataset>(*part.source, T_, split.train, split.eval);
  } else {
    part.index =
        open_document_index(index_path(spec.data, source), *part.source,
                            {.kind = spec.data.documents, .T = T_, .eval_share = source.eval_share}, opened.name);
    corpus_bytes_ += part.index->bytes();
    const std::int64_t train = part.index->training_samples(), eval = part.index->evaluation_samples();
    part.training = std::make_unique<PackedDataset>(*part.source, *part.index, 0, train, varlen_);
    if (eval > 0) part.evaluation = std::make_unique<PackedDataset>(*part.source, *part.index, train, eval, varlen_);
  }
  // By the source's name, so that a source that is added leaves the orders of the others as they were.
  const std::string use = source.name.empty() ? "data order" : "data order of " + source.name;
  part.sampler.emplace(*part.training, random_key(spec.train.seed, use));
}

void RunData::mix(const RunSpec& spec) {
  std::vector<MixedSource> trained, evaluated;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    MixedSource mixed{.samples = parts_[i].training->samples()};
    if (!spec.data.sources.empty()) {
      const SourceSpec& source = spec.data.sources[i];
      mixed.epochs = source.epochs;
      mixed.weight =
          spec.data.weigh_by == WeighBy::documents ? weight_in_tokens(source, *parts_[i].source) : source.weight;
    }
    trained.push_back(mixed);
    mixed.epochs = 0;
    mixed.weight = first_weight(mixed.weight);
    if (!parts_[i].evaluation) mixed.weight.steps[0].weight = 0;
    evaluated.push_back(mixed);
  }
  trained_.emplace(trained);
  if (std::ranges::any_of(evaluated, [](const MixedSource& s) { return s.weight.at(0) > 0; }))
    evaluated_.emplace(evaluated);
  // Batches that loss spikes leave out are consumed too.
  const std::int64_t spared = spec.train.loss_spikes == LossSpikes::rewind ? spec.train.most_rewinds : 0;
  const std::int64_t needed = (spec.train.steps + spared) * spec.train.global_batch;
  if (spec.data.documents != Documents::stream) documents_ = mean_documents(needed);
  if (needed <= trained_->samples()) return;
  throw UserError(ExitCode::usage,
                  fmt::format("the sources have {} samples in their epochs, and {} steps of {} need {}",
                              trained_->samples(), spec.train.steps + spared, spec.train.global_batch, needed),
                  trained_->samples() >= (spared + 1) * spec.train.global_batch
                      ? fmt::format("use train.steps={} or fewer, or give a source more epochs",
                                    trained_->samples() / spec.train.global_batch - spared)
                      : std::string("give a source more epochs"));
}

// Of sources that are mixed, by how many of the run's samples each gives.
std::shared_ptr<const DocumentPairs> RunData::mean_documents(std::int64_t samples) const {
  if (parts_.size() == 1) return parts_[0].training->documents();
  std::vector<DocumentPairs::Weighted> all;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    all.push_back({parts_[i].training->documents(), static_cast<double>(trained_->count(i, samples))});
  return std::make_shared<const DocumentPairs>(all);
}

SampleWork RunData::sample_work() const { return documents_ ? documents_->work() : SampleWork::of_sequence(T_); }

std::int64_t RunData::tokens_of(std::int64_t samples) const {
  return varlen_ ? std::llround(static_cast<double>(samples) * sample_work().tokens) : samples * T_;
}

std::vector<const DocumentIndex*> RunData::document_indexes() const {
  std::vector<const DocumentIndex*> all;
  for (const Part& part : parts_)
    if (part.index) all.push_back(part.index.get());
  return all;
}

void RunData::fill(const Dataset& set, std::int64_t row, std::int64_t index, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  const auto at = static_cast<std::size_t>(row * T_), count = static_cast<std::size_t>(T_);
  set.sample(index, tokens.subspan(at, count), targets.subspan(at, count));
}

void RunData::training_batch(std::int64_t first, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < std::ssize(tokens) / T_; ++i) {
    const MixturePlace place = trained_->place_of(first + i);
    const Part& part = parts_[place.source];
    fill(*part.training, i, part.sampler->sample_of(place.index), tokens, targets);
  }
}

void RunData::evaluation_batch(std::int64_t first, std::span<std::int32_t> tokens,
                               std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < std::ssize(tokens) / T_; ++i) {
    const MixturePlace place = evaluated_->place_of(first + i);
    const Dataset& set = *parts_[place.source].evaluation;
    fill(set, i, place.index % set.samples(), tokens, targets);
  }
}

std::int64_t RunData::training_samples() const {
  std::int64_t all = 0;
  for (const Part& part : parts_) all += part.training->samples();
  return all;
}

std::vector<SourceUse> RunData::uses(std::int64_t samples) const {
  std::vector<SourceUse> uses;
  if (parts_[0].name.empty()) return uses;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const std::int64_t used = trained_->count(i, samples);
    uses.push_back({.name = part.name,
                    .samples = part.training->samples(),
                    .used = used,
                    .evaluation = part.evaluation ? part.evaluation->samples() : 0,
                    .share = samples > 0 ? static_cast<double>(used) / static_cast<double>(samples) : 0,
                    .epochs = static_cast<double>(used) / static_cast<double>(part.training->samples())});
  }
  return uses;
}

bool RunData::marks_targets() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.source && part.source->marks_targets(); });
}

std::uint64_t RunData::fingerprint() const {
  if (parts_[0].name.empty()) return parts_[0].training->fingerprint();
  std::vector<std::uint64_t> all;
  for (const Part& part : parts_) all.push_back(part.training->fingerprint());
  return checksum(std::as_bytes(std::span(all)));
}

}  // namespace lockstep
