#include "cli/train_tokenizer.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "cli/usage_error.h"
#include "data/text_source.h"
#include "data/tokenizer/bpe_trainer.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "telemetry/partial_file.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

struct TrainTokenizerSettings {
  std::vector<std::string> text;
  std::string out;
  std::int64_t vocabulary = 32'000, least = 2;
  std::vector<std::string> specials;
};

void write_whole(const fs::path& path, const std::string& text) {
  PartialFile file(path);
  file.write(text);
  file.finish();
}

// A folder with those above it; where nothing is put into it, those that were not there before are gone again.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& path) {
    std::error_code ignored;
    for (fs::path at = fs::absolute(path, ignored); !fs::exists(at, ignored) && at.has_relative_path();
         at = at.parent_path())
      made_.push_back(at);
    fs::create_directories(path, ignored);
  }
  ~NewFolder() {
    std::error_code ignored;
    for (const fs::path& one : made_)
      if (!fs::remove(one, ignored)) return;  // it is not empty
  }

 private:
  std::vector<fs::path> made_;  // the innermost first
};

int run_train_tokenizer(const TrainTokenizerSettings& s) {
  const std::vector<std::string> specials = s.specials.empty() ? std::vector<std::string>{"<|endoftext|>"} : s.specials;
  const std::int64_t taken = 256 + std::ssize(specials);
  if (s.vocabulary < taken)
    refuse(fmt::format("--vocabulary {}: 256 bytes and {} special tokens are more", s.vocabulary, specials.size()),
           fmt::format("give {} or more", taken));
  if (std::set<std::string>(specials.begin(), specials.end()).size() != specials.size())
    refuse("--special: a token is given twice", "give each once");
  const fs::path out = s.out;
  const NewFolder folder(out);  // now, so that one that cannot be made is told before all is read
  if (std::error_code error; !fs::is_directory(out, error))
    throw UserError(ExitCode::usage, fmt::format("--out {} is no folder and cannot be made one", quote_text(s.out)),
                    "name a folder to write to");
  WordCounts words;
  std::int64_t bytes = 0, documents = 0;
  each_text_document(s.text, [&](const fs::path&, std::string_view text) {
    words.add(text);
    bytes += std::ssize(text);
    ++documents;
  });
  const std::vector<LearnedMerge> merges = learn_merges(words.symbols(), 256, s.vocabulary - taken, s.least);
  write_whole(out / "tokenizer.json", byte_level_tokenizer_json(merges, specials));
  const nlohmann::ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                      {"bos_token", specials[0]},
                                      {"eos_token", specials[0]},
                                      {"model_input_names", {"input_ids", "attention_mask"}},  // no token_type_ids
                                      {"clean_up_tokenization_spaces", false}};
  write_whole(out / "tokenizer_config.json", config.dump(2) + "\n");
  if (words.dropped() > 0)
    fmt::print(stderr, "lockstep: there are too many words to count: some that came up to {} times were left out\n",
               words.dropped());
  const std::int64_t learned = taken + std::ssize(merges);
  if (learned < s.vocabulary)
    fmt::print(stderr, "lockstep: no pair is left that comes {} times; the vocabulary has {} tokens\n", s.least,
               learned);
  fmt::print("vocabulary {} from {} bytes of {} documents: {}\n", learned, grouped_digits(bytes),
             grouped_digits(documents), (out / "tokenizer.json").string());
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_train_tokenizer(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<TrainTokenizerSettings>();
  CLI::App* command = app.add_subcommand("train-tokenizer", "Learn a byte-level BPE and write its tokenizer.json");
  command->footer(
      "Words are those of GPT-2's split. The most frequent pair of neighbours is merged again and again, of equal ones "
      "the\n"
      "one with the lower ids, so the same text gives the same file. The special tokens have the first ids; the first "
      "of\n"
      "them ends a document. The files have the form of Hugging Face's.\n\n"
      "Example: lockstep train-tokenizer docs --vocabulary 4096 --out my-tokenizer\n"
      "         lockstep tokenize docs --tokenizer my-tokenizer --out docs.tokens");
  command->add_option("text", s->text, "Text files and folders")->required()->type_name("PATH");
  command->add_option("--out", s->out, "Folder to write to")->required()->type_name("DIR");
  command->add_option("--vocabulary", s->vocabulary, "Tokens at most [32000]")
      ->check(CLI::Range(std::int64_t{257}, std::int64_t{1} << 20).description(""))
      ->type_name("N");
  command->add_option("--least", s->least, "Merge no pair that comes less often [2]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->type_name("N");
  command->add_option("--special", s->specials, "A special token; may be given several times [<|endoftext|>]")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->callback([s, &chosen] { chosen = [s] { return run_train_tokenizer(*s); }; });
}

}  // namespace lockstep
