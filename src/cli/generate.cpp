#include "cli/generate.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/base_option.h"
#include "cli/device_option.h"
#include "cli/generate_answer.h"
#include "cli/generate_prompts.h"
#include "cli/signals.h"
#include "cli/text_model.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/layout_spec.h"
#include "tensor/make_stream.h"
#include "train/continuation.h"
#include "train/host_values.h"
#include "train/shared_gpu.h"

namespace lockstep {

namespace {

// Ranks wait for each other while the first of them waits for whoever reads its text. One that fails ends the others at
// once, since they share a process.
constexpr double kDeadlineSeconds = 24 * 3600;

struct GenerateSettings {
  PromptSettings prompts;
  std::string base;  // of adapters
  Answer::Options answer;
  Sampling sampling;
  std::int64_t pp = 1, cp = 1, tp = 1;
  int threads = 0;
  int batch = 0;  // prompts of a file that are answered together; 0: texts_together() decides
  Device device = Device::cpu;
  Precision precision = Precision::fp32;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void note(const std::string& line) { fmt::print(stderr, "lockstep: {}\n", line); }

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

// The prompt that all ranks are at. The first of them asks for the next one, and the others wait.
class SharedPrompt {
 public:
  SharedPrompt(Prompts& prompts) : prompts_(prompts) {}
  // Null: there is none. It is there until the next call.
  const std::vector<std::int32_t>* next(Communicator& ranks, const std::atomic<bool>* stop_asked) {
    ranks.barrier()->wait();  // nobody reads the one before any more
    if (stop_asked) prompt_ = *stop_asked ? std::nullopt : prompts_.next(*stop_asked);
    ranks.barrier()->wait();
    return prompt_ ? &*prompt_ : nullptr;
  }

 private:
  Prompts& prompts_;
  std::optional<std::vector<std::int32_t>> prompt_;
};

// As many prompts as there are, but at most 16, since the products of more rows take longer (kernels/cpu/few_rows.h),
// and not more than have room in as many bytes as the weights.
int texts_together(const GenerateSettings& s, const ModelSpec& spec, const Prompts& prompts) {
  constexpr std::int64_t kMost = 16;
  const std::int64_t cache = 2 * spec.layers * prompts.positions() * spec.kv_heads * spec.head_width;
  const std::int64_t most = s.batch > 0 ? s.batch : std::clamp<std::int64_t>(parameter_count(spec) / cache, 1, kMost);
  return static_cast<int>(std::min(most, prompts.count()));
}

void say_positions_used_up(const Generator& generator, std::size_t tokens) {
  note(generator.positions() == generator.spec().max_positions
           ? fmt::format("the model's {} positions are used up after {} tokens", generator.positions(), tokens)
           : fmt::format("the room for {} tokens is used up after {}; use --context for more", generator.positions(),
                         tokens));
}

// The answers to prompts that are continued together, given in the order of the prompts.
class AnswersInOrder {
 public:
  AnswersInOrder(const GenerateSettings& s, const TextModel& source, const Generator& generator)
      : s_(s), source_(source), generator_(generator) {}

  void begin(const std::vector<std::int32_t>& prompt) {
    pending_.emplace_back(prompt, Answer(s_.answer, source_, prompt));
  }
  bool add(std::int64_t number, std::int32_t token) { return at(number).answer.add(token); }
  void finish(std::int64_t number, Finish why) {
    Pending& done = at(number);
    done.seconds = seconds_since(done.start);
    done.why = why;
    for (; !pending_.empty() && pending_.front().why; pending_.pop_front(), ++given_) {
      Pending& next = pending_.front();
      next.answer.finish(next.prompt, *next.why, next.seconds);
      if (next.why == Finish::no_positions) say_positions_used_up(generator_, next.answer.tokens());
    }
  }

 private:
  struct Pending {
    Pending(const std::vector<std::int32_t>& ids, Answer&& empty) : prompt(ids), answer(std::move(empty)) {}
    std::vector<std::int32_t> prompt;
    Answer answer;
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double seconds = 0;
    std::optional<Finish> why = {};
  };
  Pending& at(std::int64_t number) { return pending_[static_cast<std::size_t>(number - given_)]; }

  const GenerateSettings& s_;
  const TextModel& source_;
  const Generator& generator_;
  std::deque<Pending> pending_;
  std::int64_t given_ = 0;
};

// One of the ranks that share the model. All choose the same tokens; the first decides whether to continue.
void generate_rank(const GenerateSettings& s, TextModel& source, Prompts& prompts, SharedPrompt& shared_prompt,
                   Communicator& ranks) {
  Ledger ledger;
  const auto memory = make_memory(s.device, ledger);
  const int share = static_cast<int>(std::thread::hardware_concurrency()) / ranks.size();
  const auto stream = make_stream(*memory, s.threads > 0 ? s.threads : std::max(1, share));
  const auto shared = s.device == Device::cuda && ranks.size() > 1 ? on_shared_gpu(ranks, *stream) : nullptr;
  Generator generator({.spec = source.spec,
                       .positions = prompts.positions(),
                       .texts = texts_together(s, source.spec, prompts),
                       .precision = s.precision,
                       .ranks = ranks.size() == 1 ? nullptr
                                : shared          ? shared.get()
                                                  : &ranks,
                       .pp = s.pp,
                       .cp = s.cp},
                      *memory, *stream);
  load_weights(generator, source);
  ranks.barrier()->wait();
  const bool first = ranks.rank() == 0;
  if (first) {  // files stay mapped no longer than needed
    source.checkpoint.reset();
    source.hf.reset();
    source.adapters.reset();
  }

  const std::atomic<bool>* const stop_asked = first ? &listen_for_signals() : nullptr;
  const Continuation how{.max_tokens = s.prompts.max_tokens, .sampling = s.sampling, .ends = source.ends};
  // The first rank's word is that of all.
  const auto goes_on = [&](bool wanted) {
    std::int64_t stops = first && (!wanted || *stop_asked) ? 1 : 0;
    sum_over(ranks, stops);
    return stops == 0;
  };
  if (generator.texts() > 1) {
    AnswersInOrder answers(s, source, generator);
    continue_prompts(
        generator, how,
        {.next = [&]() -> std::optional<std::vector<std::int32_t>> {
           const std::vector<std::int32_t>* prompt = shared_prompt.next(ranks, stop_asked);
           if (!prompt) return std::nullopt;
           if (first) answers.begin(*prompt);
           return *prompt;
         },
         .give = [&](std::int64_t number, std::int32_t token) { return goes_on(!first || answers.add(number, token)); },
         .finished =
             [&](std::int64_t number, Finish why) {
               if (first) answers.finish(number, why);
             }});
    return;
  }
  while (const std::vector<std::int32_t>* prompt = shared_prompt.next(ranks, stop_asked)) {
    Answer answer(s.answer, source, *prompt);
    const auto start = std::chrono::steady_clock::now();
    const Finish finish = continue_prompt(generator, *prompt, how,
                                          [&](std::int32_t token) { return goes_on(!first || answer.add(token)); });
    if (!first) continue;
    answer.finish(*prompt, finish, seconds_since(start));
    if (finish == Finish::no_positions) say_positions_used_up(generator, answer.tokens());
    prompts.answered(answer.text());
  }
}

int run_generate(const GenerateSettings& s) {
  validate(s.sampling);
  TextModel source = open_text_model(s.prompts.folder, s.base, !s.answer.ids);
  const std::unique_ptr<Prompts> prompts = make_prompts(s.prompts, source);
  require_cut(s, source.spec);
  SharedPrompt shared_prompt(*prompts);
  run_ranks(static_cast<int>(s.pp * s.cp * s.tp),
            [&](std::unique_ptr<Communicator> ranks) { generate_rank(s, source, *prompts, shared_prompt, *ranks); },
            {.deadline_seconds = kDeadlineSeconds});
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_generate(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<GenerateSettings>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained model");
  command->footer(
      "A model trained on text as bytes, or with a tokenizer.json in its folder, takes --prompt and gives text; an\n"
      "empty prompt begins a document. Any model takes --tokens and gives token ids. It ends at the end of a "
      "document,\n"
      "at a --stop text, after --max-tokens, when the model's positions are used up, or with Ctrl-C. The same seed\n"
      "gives the same text.\n\n"
      "--chat answers as the folder's chat template says: --prompt, or every line of standard input in turn. "
      "--messages\n"
      "takes a conversation from a file: [{\"role\": \"user\", \"content\": \"…\"}, …]. --prompts takes a prompt per "
      "line,\n"
      "or from a .jsonl file objects with \"prompt\" or \"messages\", and gives an answer for each, as JSON.\n\n"
      "Examples: lockstep generate runs/example --prompt \"Once upon\"\n"
      "          lockstep generate runs/example/checkpoints/step-00000050 --temperature 0\n"
      "          lockstep generate my-hf-folder --tokens \"1 5 9\" --top-p 0.9 --pp 2 --tp 2\n"
      "          lockstep generate my-hf-folder --chat --system \"Be brief.\"");
  command
      ->add_option("folder", s->prompts.folder,
                   "Run folder (its newest whole checkpoint), checkpoint, Hugging Face folder or adapters")
      ->required()
      ->type_name("DIR");
  add_base_option(*command, s->base);
  CLI::Option* prompt = command->add_option("--prompt", s->prompts.prompt, "Text to continue []")->type_name("TEXT");
  CLI::Option* tokens =
      command->add_option("--tokens", s->prompts.tokens, "Token ids to continue, such as \"1 5 9\"")->type_name("IDS");
  tokens->excludes(prompt);
  CLI::Option* prompts =
      command->add_option("--prompts", s->prompts.file, "Text to continue, a prompt per line of this file")
          ->type_name("FILE");
  prompts->excludes(prompt)->excludes(tokens);
  command
      ->add_option("--batch", s->batch,
                   "Prompts of --prompts that are answered together [16, or as many as their caches are no larger than "
                   "the weights]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N")
      ->needs(prompts);
  CLI::Option* chat =
      command->add_flag("--chat", s->prompts.chat, "Answer --prompt, or lines of standard input, as a conversation");
  CLI::Option* messages =
      command->add_option("--messages", s->prompts.messages, "Answer the conversation in this file")->type_name("FILE");
  CLI::Option* system =
      command->add_option("--system", s->prompts.system, "First message of a conversation")->type_name("TEXT");
  CLI::Option* context = command
                             ->add_option("--context", s->prompts.context,
                                          "Tokens of a conversation on standard input [4096, or the model's positions]")
                             ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
                             ->type_name("N");
  chat->excludes(tokens)->excludes(prompts)->excludes(messages);
  messages->excludes(tokens)->excludes(prompts)->excludes(prompt);
  system->needs(chat);
  context->needs(chat)->excludes(prompt);
  CLI::Option* stop = command->add_option("--stop", s->answer.stops, "Text to end at; may be given several times")
                          ->type_name("TEXT")
                          ->allow_extra_args(false);
  stop->excludes(tokens);
  command->add_option("--max-tokens", s->prompts.max_tokens, "Tokens to give at most [200]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->type_name("N");
  command->add_option("--temperature", s->sampling.temperature, "How freely to choose; 0 = always the likeliest [0.8]")
      ->type_name("T");
  command->add_option("--top-k", s->sampling.top_k, "Choose among the K likeliest; 0 = among all [0]")->type_name("K");
  command
      ->add_option("--top-p", s->sampling.top_p, "Choose among the fewest that have this share of the probability [1]")
      ->type_name("P");
  command
      ->add_option("--min-p", s->sampling.min_p,
                   "Choose among those at least this share as likely as the likeliest; 0 = among all [0]")
      ->type_name("P");
  command
      ->add_option("--repetition-penalty", s->sampling.repetition,
                   "Above 1: makes tokens that were there before less likely [1]")
      ->type_name("R");
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
  command->add_flag("--json", s->answer.json,
                    "Print {prompt_tokens: [ids], tokens: [ids], text (null with --tokens), tokens_per_s (the prompt's "
                    "time included), finish (end, stop, length, positions or interrupted)} at the end");
  command->callback([s, tokens, prompt, prompts, system, &chosen] {
    s->prompts.has_tokens = s->answer.ids = tokens->count() > 0;
    s->prompts.has_prompt = prompt->count() > 0;
    s->prompts.has_system = system->count() > 0;
    if (prompts->count() > 0) s->answer.json = true;
    chosen = [s] { return run_generate(*s); };
  });
}

}  // namespace lockstep
