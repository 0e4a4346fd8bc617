#include "cli/tokenize.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_model.h"
#include "data/corpus/corpus_encoder.h"
#include "spec/run/run_spec.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

struct TokenizeSettings {
  std::vector<std::string> text;
  std::string out, tokenizer, key;
  int threads = 0;
  bool conversations = false;
  std::int64_t longest = 0;  // MiB; 0: not given
  double save_every = 10;
};

// On a terminal: how far the work is, drawn again five times a second.
class TokenizeBar {
 public:
  TokenizeBar() : shown_(on_terminal(STDERR_FILENO)) {}
  ~TokenizeBar() { clear(); }

  void show(const CorpusProgress& p) {
    const auto now = Clock::now();
    if (!shown_ || now - drawn_ < std::chrono::milliseconds(200)) return;
    drawn_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double share = p.all_raw_bytes > 0
                             ? std::min(1.0, static_cast<double>(p.raw_bytes) / static_cast<double>(p.all_raw_bytes))
                             : 0;
    std::string line;
    if (p.all_raw_bytes > 0) {
      constexpr int kCells = 12;
      const int full = static_cast<int>(share * kCells);
      for (int i = 0; i < kCells; ++i) line += i < full ? "█" : "░";
      line += fmt::format(" {:.0f} %  ", share * 100);
      if (share > 0) line += fmt::format("{} left  ", duration_text(seconds * (1 - share) / share));
    }
    line += fmt::format("{} documents  {} tokens  {}/s", grouped_digits(p.documents), grouped_digits(p.tokens),
                        byte_text(static_cast<std::int64_t>(static_cast<double>(p.text_bytes) / seconds)));
    fmt::print(stderr, "\r\033[K{}", whole_fields(line, terminal_columns(STDERR_FILENO)));
    std::fflush(stderr);
    any_ = true;
  }
  void clear() {
    if (any_) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    any_ = false;
  }

 private:
  bool shown_, any_ = false;
  Clock::time_point start_ = Clock::now(), drawn_ = {};
};

constexpr std::int64_t kLongestDocument = 256, kLongestConversation = 16;  // MiB

// What a template needs is looked for in the tokenizer's folder.
void use_conversations(const TokenizeSettings& s, CorpusJob& job) {
  job.conversations = true;
  const std::filesystem::path folder = s.tokenizer;
  std::error_code ignored;
  if (s.tokenizer.empty() || !std::filesystem::is_directory(folder, ignored)) return;
  if (std::optional<ChatTemplate> chat = ChatTemplate::find(folder))
    job.chat = std::make_shared<const ChatTemplate>(*std::move(chat));
  job.ends = configured_ends(folder / "generation_config.json");
  job.ends.push_back(job.end);
}

// Of what was read: what is a target, what was passed over, and answers that generation would not end at.
void print_conversations(const CorpusResult& result, const CorpusJob& job) {
  if (result.unanswered > 0)
    fmt::print(stderr, "lockstep: {} conversations without an answer of the assistant were passed over\n",
               grouped_digits(result.unanswered));
  if (result.endless > 0 && job.tokenizer)
    fmt::print(
        stderr,
        "lockstep: {} conversations end with an answer whose last token is {} ({}), at which `generate` does not "
        "end; add it to eos_token_id of generation_config.json\n",
        grouped_digits(result.endless),
        quote_text(job.tokenizer->decode(std::span(&result.endless_token, 1), Specials::add)), result.endless_token);
  fmt::print("{} tokens of answers are targets: {:.1f} %\n", grouped_digits(result.targets),
             100 * static_cast<double>(result.targets) / static_cast<double>(result.tokens));
}

int run_tokenize(const TokenizeSettings& s) {
  CorpusJob job{.paths = s.text, .key = s.key, .out = s.out, .tokenizer = nullptr};
  if (!s.tokenizer.empty()) {
    job.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::load(s.tokenizer));
    job.end = end_of_document(*job.tokenizer, s.tokenizer);
  }
  require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  job.threads = s.threads > 0 ? s.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (s.conversations) use_conversations(s, job);
  const std::int64_t usual = s.conversations ? kLongestConversation : kLongestDocument;
  job.longest = static_cast<std::size_t>(s.longest > 0 ? s.longest : usual) << 20;
  job.save_seconds = s.save_every;
  TokenizeBar bar;
  job.note = [&](const std::string& line) {
    bar.clear();
    fmt::print(stderr, "lockstep: {}\n", line);
  };
  const std::atomic<bool>& stop = listen_for_signals();
  job.proceed = [&](const CorpusProgress& progress) {
    bar.show(progress);
    return !stop;
  };
  const CorpusResult result = encode_corpus(job);
  bar.clear();
  if (result.continued > 0)
    fmt::print(stderr, "lockstep: continued after {} documents\n", grouped_digits(result.continued));
  if (!result.complete) {
    fmt::print(stderr, "lockstep: stopped after {} documents; the same command continues\n",
               grouped_digits(result.documents));
    return static_cast<int>(ExitCode::interrupted);
  }
  if (result.empty > 0)
    fmt::print(stderr, "lockstep: {} documents without text were passed over\n", grouped_digits(result.empty));
  if (result.passed_over > 0)
    fmt::print(stderr, "lockstep: {} files that are not called .jsonl or .ndjson were passed over\n",
               grouped_digits(result.passed_over));
  fmt::print("{} tokens of {} documents, vocabulary {}: {}\n", grouped_digits(result.tokens),
             grouped_digits(result.documents), job.tokenizer ? job.tokenizer->vocabulary() : kByteVocabulary, s.out);
  if (s.conversations) print_conversations(result, job);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_tokenize(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<TokenizeSettings>();
  CLI::App* command = app.add_subcommand("tokenize", "Write text or JSON lines as one token file");
  command->footer(
      "Each byte is a token and each file a document that ends with token 256, so a model needs a vocabulary of 257.\n"
      "With --tokenizer the tokens are those of its tokenizer.json, with what its template adds, and the end of a "
      "document\n"
      "is the eos_token of its tokenizer_config.json, or a special token such as <|endoftext|> or </s>.\n"
      "With --key each line is a JSON object and the text of that key a document; of folders, files in .jsonl and "
      ".ndjson\n"
      "are read. Files may end in .gz or .zst; - is standard input. Documents keep the order of the input. A command "
      "that\n"
      "was stopped or killed continues when it is given again, and writes the same file.\n"
      "With --conversations each line is {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}, …]}, written by "
      "the chat\n"
      "template of the tokenizer's folder, or {\"prompt\": \"…\", \"completion\": \"…\"}; only answers are "
      "targets.\n"
      "A run file reads the result by data.tokens; it is mapped, so its size does not matter.\n\n"
      "Example: lockstep tokenize docs README.md --out docs.tokens\n"
      "          lockstep tokenize web/ --key text --tokenizer my-hf-folder --out web.tokens\n"
      "          lockstep tokenize talks.jsonl --conversations --tokenizer my-hf-folder --out talks.tokens\n"
      "          curl -s URL | lockstep tokenize - --key text --out some.tokens");
  command->add_option("text", s->text, "Text files, JSON lines, folders, or - for standard input")
      ->required()
      ->type_name("PATH");
  command->add_option("--tokenizer", s->tokenizer, "Folder with a tokenizer.json of Hugging Face [bytes]")
      ->type_name("DIR");
  CLI::Option* key =
      command->add_option("--key", s->key, "The inputs are JSON lines, and this key has the text [the inputs are text]")
          ->type_name("KEY");
  command
      ->add_flag("--conversations", s->conversations,
                 "The inputs are JSON lines of conversations, or of prompts and completions; answers are marked")
      ->excludes(key);
  command->add_option("--out", s->out, "Token file to write")->required()->type_name("FILE");
  command->add_option("--threads", s->threads, "Threads that encode; the file is the same for any number [all cores]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command
      ->add_option("--longest", s->longest,
                   "MiB of a document at most; one that is longer is refused [256; of a line of conversations 16]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20).description(""))
      ->type_name("MIB");
  command->add_option("--save-every", s->save_every, "Seconds between saves of how far it is [10]")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->type_name("SECONDS");
  command->callback([s, &chosen] { chosen = [s] { return run_tokenize(*s); }; });
}

}  // namespace lockstep
