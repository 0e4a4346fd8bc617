#include "cli/generate.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/manifest.h"
#include "cli/device_option.h"
#include "cli/signals.h"
#include "comm/threads/run_ranks.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/decoded_stream.h"
#include "spec/layout/layout_spec.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"
#include "tensor/make_stream.h"
#include "train/generator.h"
#include "train/host_values.h"
#include "train/shared_gpu.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// Ranks wait for each other while the first of them waits for whoever reads its text. One that fails ends the others at
// once, since they share a process.
constexpr double kDeadlineSeconds = 24 * 3600;

struct GenerateSettings {
  std::string folder, prompt, tokens;
  bool has_tokens = false, json = false;
  std::int64_t max_tokens = 200;
  Sampling sampling;
  std::int64_t pp = 1, cp = 1, tp = 1;
  int threads = 0;
  Device device = Device::cpu;
  Precision precision = Precision::fp32;
};

void note(const std::string& line) { fmt::print(stderr, "lockstep: {}\n", line); }

// What the folder holds: one of the two.
struct Source {
  std::optional<Checkpoint> checkpoint;
  std::optional<HfFolder> hf;
  ModelSpec spec;
  bool bytes = false;                    // its tokens are bytes of text
  fs::path tokenizer, tokenizer_config;  // where they would be, if its tokens are not
  std::optional<Tokenizer> text;         // of that tokenizer, where text is asked for
  std::optional<std::int32_t> end;       // the token that ends a document
};

Source open_source(const std::string& folder) {
  Source source;
  const fs::path given = folder;
  std::error_code ignored;
  if (!fs::is_directory(given, ignored))
    throw UserError(ExitCode::checkpoint, fmt::format("there is no folder {}", quote_text(folder)),
                    "name a run folder, one checkpoint or a Hugging Face folder");
  const auto report = [](const fs::path& path, const std::string& reason) {
    note(fmt::format("skipping {}: {}", path.string(), reason));
  };
  if (fs::exists(given / "config.json", ignored) && !fs::exists(given / kManifestName, ignored)) {
    source.hf.emplace(given);
    source.spec = source.hf->spec();
    source.bytes = fs::exists(given / kByteMark, ignored);
    source.tokenizer = given / "tokenizer.json";
    source.tokenizer_config = given / "tokenizer_config.json";
    return source;
  }
  source.checkpoint = find_checkpoint(given, report);
  if (!source.checkpoint)
    throw UserError(ExitCode::checkpoint, fmt::format("{} holds no whole checkpoint", quote_text(folder)),
                    "name a run folder that has saved one, one checkpoint or a Hugging Face folder");
  const RunSpec run =
      parse_run_toml(source.checkpoint->progress().run_file, (source.checkpoint->path() / kManifestName).string(), ".");
  source.spec = run.model;
  source.bytes = speaks_bytes(run.data);
  source.tokenizer = source.checkpoint->path() / "hf-tokenizer.json";
  source.tokenizer_config = source.checkpoint->path() / "hf-tokenizer_config.json";
  return source;
}

std::vector<std::int32_t> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " \t\n\r,";
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      throw UserError(ExitCode::usage, fmt::format("--tokens: {} is not a token id", quote_text(word)),
                      "give whole numbers, such as --tokens \"1 5 9\"");
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

std::vector<std::int32_t> prompt_of(const GenerateSettings& s, const Source& source) {
  std::vector<std::int32_t> ids;
  if (s.has_tokens)
    ids = parse_ids(s.tokens);
  else if (source.bytes)
    ids = encode_bytes(s.prompt);
  else if (source.text)
    ids = source.text->encode(s.prompt, Specials::add);
  else
    throw UserError(
        ExitCode::usage,
        fmt::format("the tokens of {} are not bytes of text, and it has no tokenizer.json", quote_text(s.folder)),
        "give the prompt as ids, such as --tokens \"1 5 9\"");
  if (ids.empty()) {
    if (!source.bytes && !source.end)
      throw UserError(ExitCode::usage, "--tokens holds no token id", "give at least one, such as --tokens \"1 5 9\"");
    ids.push_back(source.bytes ? kEndOfDocument : *source.end);
  }
  require_in_vocabulary(ids, source.spec);
  if (std::ssize(ids) > source.spec.max_positions)
    throw UserError(
        ExitCode::usage,
        fmt::format("the prompt has {} tokens and the model {} positions", ids.size(), source.spec.max_positions),
        fmt::format("give at most {}", source.spec.max_positions));
  return ids;
}

void require_cut(const GenerateSettings& s, const ModelSpec& spec) {
  if (const std::int64_t units = spec.layers + 2; s.pp > units)
    throw UserError(
        ExitCode::usage,
        fmt::format("{} layers, the embedding and the head cannot be split into pp ({}) stages", spec.layers, s.pp),
        fmt::format("use --pp {} or less", units));
  if (s.cp > spec.max_positions)
    throw UserError(ExitCode::usage,
                    fmt::format("a cache of {} positions cannot be split over cp ({}) ranks", spec.max_positions, s.cp),
                    fmt::format("use --cp {} or less", spec.max_positions));
  check_tensor_layout(spec, {.tp = s.tp, .sp = Switch::off},
                      [](std::string_view, const std::string& problem, std::string remedy) {
                        constexpr std::string_view kKey = "tp = ";  // here it is an option
                        if (const auto at = remedy.find(kKey); at != remedy.npos)
                          remedy.replace(at, kKey.size(), "--tp ");
                        throw UserError(ExitCode::usage, problem, remedy);
                      });
}

// What is given, as it comes; of several ranks the first alone has one.
class Answer {
 public:
  Answer(const GenerateSettings& s, const Source& source, const std::vector<std::int32_t>& prompt) : s_(s) {
    if (source.text) tokens_to_text_.emplace(*source.text, prompt);
  }

  // Whether it could be told.
  bool add(std::int32_t token) {
    tokens_.push_back(token);
    return print(s_.has_tokens     ? fmt::format("{}{}", tokens_.size() > 1 ? " " : "", token)
                 : tokens_to_text_ ? tokens_to_text_->push(token)
                                   : decoder_.push(token));
  }
  void finish(const std::vector<std::int32_t>& prompt, double seconds) {
    const bool text = !s_.has_tokens;
    if (text) print(tokens_to_text_ ? tokens_to_text_->finish() : decoder_.finish());
    if (!s_.json) {
      std::fputc('\n', stdout);
      return;
    }
    const nlohmann::ordered_json out{{"prompt_tokens", prompt},
                                     {"tokens", tokens_},
                                     {"text", text ? nlohmann::ordered_json(whole_) : nlohmann::ordered_json()},
                                     {"tokens_per_s", static_cast<double>(tokens_.size()) / seconds}};
    fmt::print("{}\n", out.dump());
  }
  std::size_t tokens() const { return tokens_.size(); }

 private:
  bool print(const std::string& piece) {
    whole_ += piece;
    if (s_.json) return true;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return std::fflush(stdout) == 0;
  }

  const GenerateSettings& s_;
  std::vector<std::int32_t> tokens_;
  std::string whole_;
  Utf8Stream decoder_;
  std::optional<DecodedStream> tokens_to_text_;
};

// One of the ranks that share the model. All choose the same tokens; the first decides whether to continue.
void generate_rank(const GenerateSettings& s, Source& source, const std::vector<std::int32_t>& prompt,
                   Communicator& ranks) {
  Ledger ledger;
  const auto memory = make_memory(s.device, ledger);
  const int share = static_cast<int>(std::thread::hardware_concurrency()) / ranks.size();
  const auto stream = make_stream(*memory, s.threads > 0 ? s.threads : std::max(1, share));
  const auto shared = s.device == Device::cuda && ranks.size() > 1 ? on_shared_gpu(ranks, *stream) : nullptr;
  // The last token is given and not read.
  const std::int64_t positions = std::min(source.spec.max_positions, std::ssize(prompt) + s.max_tokens - 1);
  Generator generator({.spec = source.spec,
                       .positions = positions,
                       .precision = s.precision,
                       .ranks = ranks.size() == 1 ? nullptr
                                : shared          ? shared.get()
                                                  : &ranks,
                       .pp = s.pp,
                       .cp = s.cp},
                      *memory, *stream);
  if (source.checkpoint)
    generator.load(*source.checkpoint);
  else
    generator.load(*source.hf);
  ranks.barrier()->wait();
  const bool first = ranks.rank() == 0;
  if (first) {  // files stay mapped no longer than needed
    source.checkpoint.reset();
    source.hf.reset();
  }

  const std::atomic<bool>* const stop_asked = first ? &listen_for_signals() : nullptr;
  Answer answer(s, source, prompt);
  const auto start = std::chrono::steady_clock::now();
  const Finish finish = go_on(generator, prompt,
                              {.max_tokens = s.max_tokens,
                               .sampling = s.sampling,
                               .end = source.bytes ? std::optional(kEndOfDocument) : source.end},
                              [&](std::int32_t token) {
                                std::int64_t stops = first && (!answer.add(token) || *stop_asked) ? 1 : 0;
                                sum_over(ranks, stops);
                                return stops == 0;
                              });
  if (!first) return;
  answer.finish(prompt, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (finish == Finish::no_positions)
    note(fmt::format("the model's {} positions are used up after {} tokens", source.spec.max_positions,
                     answer.tokens()));
}

int run_generate(const GenerateSettings& s) {
  validate(s.sampling);
  Source source = open_source(s.folder);
  std::error_code ignored;
  if (!s.has_tokens && !source.bytes && fs::exists(source.tokenizer, ignored)) {
    source.text.emplace(Tokenizer::load(source.tokenizer));
    source.end = find_end_of_document(*source.text, source.tokenizer_config);
  }
  const std::vector<std::int32_t> prompt = prompt_of(s, source);
  require_cut(s, source.spec);
  run_ranks(static_cast<int>(s.pp * s.cp * s.tp),
            [&](std::unique_ptr<Communicator> ranks) { generate_rank(s, source, prompt, *ranks); },
            {.deadline_seconds = kDeadlineSeconds});
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_generate(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<GenerateSettings>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model");
  command->footer(
      "A model trained on text as bytes, or with a tokenizer.json in its folder, takes --prompt and gives text; an "
      "empty\n"
      "prompt begins a document. Any model takes\n"
      "--tokens and gives token ids. It ends at the end of a document, after --max-tokens, when the model's positions "
      "are\n"
      "used up, or with Ctrl-C. The same seed gives the same text.\n\n"
      "Examples: lockstep generate runs/example --prompt \"Once upon\"\n"
      "          lockstep generate runs/example/checkpoints/step-00000050 --temperature 0\n"
      "          lockstep generate my-hf-folder --tokens \"1 5 9\" --top-p 0.9 --pp 2 --tp 2");
  command
      ->add_option("folder", s->folder, "Run folder (its newest whole checkpoint), checkpoint or Hugging Face folder")
      ->required()
      ->type_name("DIR");
  CLI::Option* prompt = command->add_option("--prompt", s->prompt, "Text to continue []")->type_name("TEXT");
  CLI::Option* tokens =
      command->add_option("--tokens", s->tokens, "Token ids to continue, such as \"1 5 9\"")->type_name("IDS");
  tokens->excludes(prompt);
  command->add_option("--max-tokens", s->max_tokens, "Tokens to give at most [200]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->type_name("N");
  command->add_option("--temperature", s->sampling.temperature, "How freely to choose; 0 = always the likeliest [0.8]")
      ->type_name("T");
  command->add_option("--top-k", s->sampling.top_k, "Choose among the K likeliest; 0 = among all [0]")->type_name("K");
  command
      ->add_option("--top-p", s->sampling.top_p, "Choose among the fewest that have this share of the probability [1]")
      ->type_name("P");
  command->add_option("--seed", s->sampling.seed, "Of the choices [0]")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()).description(""))
      ->type_name("S");
  command
      ->add_option("--pp", s->pp,
                   "Stages, of --cp x --tp ranks each, that split the model by layers; the text is that of one [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command
      ->add_option("--cp", s->cp,
                   "Ranks, or groups of --tp ranks, that each hold the keys and values of some of the tokens [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command->add_option("--tp", s->tp, "Ranks, as threads of this process, that every layer is split over [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command
      ->add_option("--threads", s->threads,
                   "Threads of each rank's kernels; the result is the same for any number [its share of all cores]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  add_device_option(*command, s->device);
  add_precision_option(*command, s->precision, "fp32");
  command->add_flag("--json", s->json,
                    "Print {prompt_tokens: [ids], tokens: [ids], text (null with --tokens), tokens_per_s (the prompt's "
                    "time included)} at the end");
  command->callback([s, tokens, &chosen] {
    s->has_tokens = tokens->count() > 0;
    chosen = [s] { return run_generate(*s); };
  });
}

}  // namespace lockstep
