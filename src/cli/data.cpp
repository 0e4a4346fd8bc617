#include "cli/data.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/usage_error.h"
#include "data/byte_tokenizer.h"
#include "data/corpus/token_statistics.h"
#include "data/open_tokens.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

constexpr std::int64_t kAnyId = std::int64_t{1} << 31;

struct DataSettings {
  std::string path, tokenizer, type;
  std::int64_t sample = -1, seq = 256;
  bool has_seq = false;
  std::vector<std::string> sets;
};

// How ids are shown, and which of them ends a document.
struct Words {
  std::optional<Tokenizer> tokenizer;
  bool bytes = false;
  std::optional<std::int32_t> end;

  std::string text(std::span<const std::int32_t> ids) const {
    if (tokenizer) return tokenizer->decode(ids, Specials::add);
    if (!bytes) return fmt::format("{}", fmt::join(ids, " "));
    Utf8Stream stream;
    std::string out = stream.push(ids);
    return out += stream.finish();
  }
  std::string shown(std::int32_t id) const {
    if (!tokenizer && !bytes) return fmt::format("{}", id);
    if (id == end) return fmt::format("{} (end of a document)", id);
    return fmt::format("{} {}", id, quote_text(text(std::span(&id, 1))));
  }
};

Words words_of(const std::string& folder, bool bytes) {
  Words words;
  if (!folder.empty()) {
    words.tokenizer.emplace(Tokenizer::load(folder));
    words.end = end_of_document(*words.tokenizer, folder);
  } else if (bytes) {
    words.bytes = true;
    words.end = kEndOfDocument;
  }
  return words;
}

void print_fact(std::string_view name, const std::string& text) { fmt::print("{:<12} {}\n", name, text); }

double percent_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void print_lengths(const TokenStatistics& s) {
  print_fact("documents",
             fmt::format("{}, of {} to {} tokens, {:.1f} on average", grouped_digits(s.documents),
                         grouped_digits(s.shortest), grouped_digits(s.longest),
                         static_cast<double>(s.tokens) / static_cast<double>(std::max<std::int64_t>(1, s.documents))));
  const std::int64_t most = *std::ranges::max_element(s.lengths);
  for (std::size_t i = 0; i < s.lengths.size(); ++i) {
    if (s.lengths[i] == 0) continue;
    std::string bar;
    for (std::int64_t k = 0; k < (s.lengths[i] * 40 + most - 1) / most; ++k) bar += "█";
    fmt::print("  {:>12} to {:<12} {:>12}  {}\n", grouped_digits(std::int64_t{1} << i),
               grouped_digits((std::int64_t{2} << i) - 1), grouped_digits(s.lengths[i]), bar);
  }
  print_fact("duplicates", fmt::format("{} documents equal an earlier one: {:.2f} % of the tokens",
                                       grouped_digits(s.repeated), percent_of(s.repeated_tokens, s.tokens)));
}

void print_frequencies(const TokenStatistics& s, const Words& words) {
  print_fact("ids", fmt::format("{} different ones", grouped_digits(s.distinct() + (s.beyond > 0 ? 1 : 0))));
  for (const std::int32_t id : s.most_frequent(10)) {
    const std::int64_t count = s.counts[static_cast<std::size_t>(id)];
    fmt::print("  {:>12} {:>6.2f} %  {}\n", grouped_digits(count), percent_of(count, s.tokens), words.shown(id));
  }
  if (words.tokenizer) {
    const UnknownTokens u = unknown_tokens(s, *words.tokenizer);
    print_fact("unknown", fmt::format("{} unknown tokens, {} bytes by themselves, {} ids that the tokenizer has not",
                                      grouped_digits(u.unknown), grouped_digits(u.bytes), grouped_digits(u.nothing)));
  }
}

// The text of a part of a sample; targets that are marked stand between ⟦ and ⟧. `counts`: of each token.
std::string text_of(std::span<const std::int32_t> ids, const std::vector<bool>& counts, std::size_t from,
                    std::size_t to, const Words& words) {
  if (counts.empty()) return words.text(ids.subspan(from, to - from));
  std::string text;
  for (std::size_t end = from; from < to; from = end) {
    while (end < to && counts[end] == counts[from]) ++end;
    const std::string part = words.text(ids.subspan(from, end - from));
    text += counts[from] ? "⟦" + part + "⟧" : part;
  }
  return text;
}

// A sample as text, with a line where a document ends. `borders`: positions in it before which one begins. `counts`:
// which of its tokens are targets; empty: all.
void print_sample(std::int64_t number, std::span<const std::int32_t> ids, std::span<const std::int64_t> borders,
                  const Words& words, const std::vector<bool>& counts = {}) {
  print_fact("sample", fmt::format("{}: {} tokens", grouped_digits(number), ids.size()));
  if (!counts.empty())
    print_fact("targets", fmt::format("{} tokens, between ⟦ and ⟧", std::ranges::count(counts, true)));
  std::size_t from = 0;
  const auto print_part = [&](std::size_t to) {
    if (to > from) fmt::print("{}\n", text_of(ids, counts, from, to, words));
    from = to;
  };
  for (const std::int64_t border : borders) {
    print_part(static_cast<std::size_t>(border));
    fmt::print("──────── a document begins at token {} of the sample ────────\n", border);
  }
  print_part(ids.size());
}

std::vector<std::int64_t> borders_after(std::span<const std::int32_t> ids, std::optional<std::int32_t> end) {
  std::vector<std::int64_t> borders;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    if (end && ids[i] == *end) borders.push_back(static_cast<std::int64_t>(i) + 1);
  return borders;
}

// Of an index: the documents that begin in [first, first + count).
std::vector<std::int64_t> borders_of(const DocumentTokens& file, std::int64_t first, std::int64_t count) {
  std::int64_t low = 0, high = file.documents();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (file.document(middle).first < first)
      low = middle + 1;
    else
      high = middle;
  }
  std::vector<std::int64_t> borders;
  for (; low < file.documents() && file.document(low).first < first + count; ++low)
    if (file.document(low).second > file.document(low).first) borders.push_back(file.document(low).first - first);
  return borders;
}

int inspect_tokens(const DataSettings& s) {
  const TokenType type = s.type == "u16" ? TokenType::u16 : s.type == "u32" ? TokenType::u32 : TokenType::named;
  const auto file = open_tokens(s.path, type, kAnyId);
  // Bytes are only known by the vocabulary that the program's own files state.
  const Words words = words_of(s.tokenizer, file->vocabulary() == kByteVocabulary);
  print_fact("file", fmt::format("{}: {} tokens, ids below {}", file->form(), grouped_digits(file->tokens()),
                                 grouped_digits(file->vocabulary())));
  if (s.sample >= 0) {
    const std::int64_t samples = file->tokens() == 0 ? 0 : (file->tokens() - 1) / s.seq;
    if (s.sample >= samples)
      refuse(fmt::format("--sample {}: there are {} samples of {} tokens", s.sample, samples, s.seq),
             samples > 0 ? fmt::format("give one below {}", samples) : std::string("give a smaller --seq"));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(s.seq));
    file->read(s.sample * s.seq, ids);
    std::vector<bool> counts;
    if (file->marks_targets()) {
      std::vector<std::int32_t> targets(ids.size());
      file->read_targets(s.sample * s.seq, targets);
      for (const std::int32_t target : targets) counts.push_back(target != kNoTarget);
    }
    print_sample(s.sample, ids,
                 file->documents() > 0 ? borders_of(*file, s.sample * s.seq, s.seq) : borders_after(ids, words.end),
                 words, counts);
    return static_cast<int>(ExitCode::done);
  }
  file->verify();
  const TokenStatistics statistics = count_tokens(*file, words.end);
  if (statistics.documents > 0)
    print_lengths(statistics);
  else
    print_fact("documents", "not known: the file has no index; with --tokenizer, its end of a document is looked for");
  if (file->marks_targets()) {
    const std::int64_t targets = file->count_targets(0, file->tokens());
    print_fact("targets", fmt::format("{} tokens, of answers: {:.2f} %", grouped_digits(targets),
                                      percent_of(targets, file->tokens())));
  }
  print_frequencies(statistics, words);
  return static_cast<int>(ExitCode::done);
}

// A token of a sample counts if the one before it has it as its target.
std::vector<bool> counts_of(std::span<const std::int32_t> targets) {
  std::vector<bool> counts(targets.size());
  for (std::size_t i = 1; i < targets.size(); ++i) counts[i] = targets[i - 1] != kNoTarget;
  return counts;
}

// Of a run: its sources, or the sample that training takes as its n-th.
int inspect_run(const DataSettings& s) {
  const RunSpec spec = read_run_file(s.path, s.sets);
  const RunData data(spec);
  const std::int64_t samples = spec.train.steps * spec.train.global_batch;
  const std::vector<SourceUse> uses = data.uses(samples);
  const bool varlen = spec.data.documents == Documents::varlen;
  print_fact("run", fmt::format("{} steps of {} samples of {}{} tokens: {} samples, {} tokens", spec.train.steps,
                                spec.train.global_batch, varlen ? "at most " : "", spec.data.seq,
                                grouped_digits(samples), grouped_digits(data.tokens_of(samples))));
  for (const SourceUse& use : uses)
    print_fact("source", fmt::format("{}: {:.2f} % of the samples, {} = {:.2f} epochs of {}{}", use.name,
                                     use.share * 100, grouped_digits(use.used), use.epochs, grouped_digits(use.samples),
                                     use.evaluation > 0 ? fmt::format(", and {} for evaluation", use.evaluation) : ""));
  if (uses.empty())
    print_fact("data", fmt::format("{} samples to train on: {:.2f} epochs", grouped_digits(data.training_samples()),
                                   static_cast<double>(samples) / static_cast<double>(data.training_samples())));
  if (s.sample < 0) return static_cast<int>(ExitCode::done);
  if (s.sample >= samples)
    refuse(fmt::format("--sample {}: the run takes {} samples", s.sample, samples),
           samples > 0 ? fmt::format("give one below {}", samples) : std::string("give the run more steps"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(spec.data.seq)), targets(ids.size());
  data.training_batch(s.sample, ids, targets);
  const Words words = words_of(s.tokenizer.empty() ? spec.data.tokenizer : s.tokenizer, speaks_bytes(spec.data));
  if (!data.documents()) {
    print_sample(s.sample, ids, borders_after(ids, words.end), words,
                 data.marks_targets() ? counts_of(targets) : std::vector<bool>());
    return static_cast<int>(ExitCode::done);
  }
  // Of documents, tokens say where one begins; padding is at the end.
  std::size_t size = ids.size();
  const std::int32_t padding = varlen ? kPadding : kBeginsDocument;
  while (size > 0 && ids[size - 1] == padding && targets[size - 1] == kNoTarget) --size;
  std::vector<std::int64_t> borders;
  for (std::size_t i = 0; i < size; ++i) {
    if (i > 0 && (ids[i] & kBeginsDocument)) borders.push_back(static_cast<std::int64_t>(i));
    ids[i] &= ~kBeginsDocument;
  }
  print_sample(s.sample, std::span(ids).first(size), borders, words,
               data.marks_targets() ? counts_of(std::span(targets).first(size)) : std::vector<bool>());
  if (varlen) print_fact("length", fmt::format("{} tokens of at most {}", size, ids.size()));
  if (size < ids.size() && !varlen) print_fact("padding", fmt::format("{} tokens", ids.size() - size));
  return static_cast<int>(ExitCode::done);
}

int run_data_inspect(const DataSettings& s) {
  if (!s.path.ends_with(".toml")) return inspect_tokens(s);
  if (!s.type.empty()) refuse("--token-type is of a token file", "set data.token_type in the run file");
  if (s.has_seq) refuse("--seq is of a token file", "set data.seq in the run file, or by --set data.seq=N");
  return inspect_run(s);
}

}  // namespace

void add_data(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<DataSettings>();
  CLI::App* data = app.add_subcommand("data", "Look into token files and mixtures");
  data->require_subcommand(1);
  CLI::App* command = data->add_subcommand("inspect", "Show what a token file or a run's data hold");
  command->footer(
      "Of a token file (Lockstep's, Megatron-LM's, llm.c's, or ids without a header): lengths of documents, documents "
      "that\n"
      "come again, and how often each token comes. Of a run file: how many samples each source gives. With --sample, "
      "one\n"
      "sample as text, with its documents' borders: of a token file the N-th window of --seq tokens, of a run file "
      "the\n"
      "sample that training takes as its N-th.\n\n"
      "Examples: lockstep data inspect web.tokens --tokenizer my-hf-folder\n"
      "          lockstep data inspect train.bin --token-type u16\n"
      "          lockstep data inspect run.toml --sample 1000");
  command->add_option("file", s->path, "Token file, or a run file that ends in .toml")->required()->type_name("FILE");
  command->add_option("--tokenizer", s->tokenizer, "Folder with the tokenizer.json of the ids")->type_name("DIR");
  command->add_option("--token-type", s->type, "Of ids without a header: u16 or u32")
      ->check(CLI::IsMember({"u16", "u32"}))
      ->type_name("TYPE");
  command->add_option("--sample", s->sample, "Show this sample")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 60).description(""))
      ->type_name("N");
  CLI::Option* seq = command->add_option("--seq", s->seq, "Tokens of a sample of a token file [256]")
                         ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""))
                         ->type_name("T");
  command->add_option("--set", s->sets, "Change a key of the run file")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->callback([s, seq, &chosen] {
    s->has_seq = seq->count() > 0;
    chosen = [s] { return run_data_inspect(*s); };
  });
}

}  // namespace lockstep
