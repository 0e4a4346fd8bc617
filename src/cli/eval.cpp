#include "cli/eval.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "cli/base_option.h"
#include "cli/device_option.h"
#include "cli/text_model.h"
#include "cli/usage_error.h"
#include "data/byte_tokenizer.h"
#include "data/corpus/corpus_inputs.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/json_text.h"
#include "data/open_tokens.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "tensor/make_stream.h"
#include "train/scoring.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestText = std::size_t{256} << 20;

struct EvalSettings {
  std::string folder, base, data, key, type, between = " ";
  bool tokens = false, choices = false, documents = false, json = false;
  std::int64_t seq = 0, stride = 0, limit = 0;
  int threads = 0;
  Device device = Device::cpu;
  Precision precision = Precision::fp32;
};

std::vector<std::int32_t> ids_of(const TextModel& model, const std::string& text) {
  if (text.empty()) return {};
  return model.bytes ? encode_bytes(text) : model.text->encode(text, Specials::skip);
}
// What stands before the first token.
std::int32_t start_of(const TextModel& model) { return model.document_end.value_or(0); }

TextModel open_model(const EvalSettings& s) {
  TextModel model = open_text_model(s.folder, s.base, true);
  if (!s.tokens && !model.bytes && !model.text)
    throw UserError(
        ExitCode::usage,
        fmt::format("the tokens of {} are not bytes of text, and it has no tokenizer.json", quote_text(s.folder)),
        "give a token file, with --tokens");
  return model;
}

double perplexity_of(const TextLoss& loss) {
  return loss.tokens > 0 ? std::exp(loss.nats / static_cast<double>(loss.tokens)) : 0;
}

// Documents one after another: their losses, in total and, where they are asked for, one by one.
class DocumentLosses {
 public:
  DocumentLosses(const EvalSettings& s, const TextModel& model, Generator& generator, std::int64_t length)
      : s_(s),
        model_(model),
        generator_(generator),
        length_(length),
        stride_(s.stride > 0 ? s.stride : (length + 1) / 2) {
    if (stride_ > length_)
      refuse(fmt::format("--stride {} is longer than the windows of {}", stride_, length_),
             fmt::format("give {} or less", length_));
  }

  bool full() const { return s_.limit > 0 && documents_ >= s_.limit; }
  // `targets`: the ids, but for those that do not count; empty: all count.
  void add(std::span<const std::int32_t> ids, std::int64_t bytes, std::span<const std::int32_t> targets = {}) {
    if (ids.empty()) return;
    const TextLoss loss = document_loss(generator_, start_of(model_), ids, length_, stride_, targets);
    if (s_.documents && s_.json)
      fmt::print("{}\n", nlohmann::ordered_json{{"document", documents_},
                                                {"tokens", loss.tokens},
                                                {"nats", loss.nats},
                                                {"perplexity", perplexity_of(loss)}}
                             .dump());
    else if (s_.documents)
      fmt::print("document {:<8} {:>10} tokens  perplexity {:.4f}\n", documents_, loss.tokens, perplexity_of(loss));
    total_ += loss;
    bytes_ += bytes;
    ++documents_;
  }
  void print() const {
    if (documents_ == 0)
      throw UserError(ExitCode::bad_input_file, fmt::format("{}: there is no text in it", s_.data),
                      "name a file with text or tokens");
    const double nats = total_.nats / static_cast<double>(total_.tokens);
    const double bits = bytes_ > 0 ? total_.nats / std::log(2.0) / static_cast<double>(bytes_) : 0;
    if (s_.json) {
      nlohmann::ordered_json out{{"documents", documents_},
                                 {"tokens", total_.tokens},
                                 {"nats", total_.nats},
                                 {"loss", nats},
                                 {"perplexity", perplexity_of(total_)}};
      if (bytes_ > 0) out["bits_per_byte"] = bits;
      fmt::print("{}\n", out.dump());
      return;
    }
    fmt::print("{} documents, {} tokens: perplexity {:.4f}, loss {:.6f} nats per token{}\n", grouped_digits(documents_),
               grouped_digits(total_.tokens), perplexity_of(total_), nats,
               bytes_ > 0 ? fmt::format(", {:.4f} bits per byte", bits) : "");
  }

 private:
  const EvalSettings& s_;
  const TextModel& model_;
  Generator& generator_;
  std::int64_t length_, stride_, documents_ = 0, bytes_ = 0;
  TextLoss total_;
};

void eval_tokens(const EvalSettings& s, const TextModel& model, DocumentLosses& losses) {
  const TokenType type = s.type == "u16" ? TokenType::u16 : s.type == "u32" ? TokenType::u32 : TokenType::named;
  const auto file = open_tokens(s.data, type, model.spec.vocabulary);
  std::vector<std::int32_t> ids, targets;
  const auto add = [&](std::int64_t first, std::int64_t end) {
    ids.resize(static_cast<std::size_t>(end - first));
    file->read(first, ids);
    targets.resize(ids.size());
    file->read_targets(first, targets);
    losses.add(ids, 0, targets);
  };
  if (file->documents() == 0) add(0, file->tokens());
  for (std::int64_t i = 0; i < file->documents() && !losses.full(); ++i) {
    const auto [first, end] = file->document(i);
    add(first, end);
  }
}

// Each document of the input, until `visit` has had enough; `line` is 0 where it is a whole file.
using VisitDocument = std::function<bool(const std::string& path, std::int64_t line, std::string_view text)>;
void each_document(const EvalSettings& s, bool json, const VisitDocument& visit) {
  const std::vector<std::string> paths{s.data};
  const CorpusInputs inputs = find_inputs(paths, json, s.choices ? "" : kTextWithoutKey);
  DocumentReader reader(inputs, json, kLongestText, {});
  while (const std::optional<RawBatch> batch = reader.next())
    for (const RawDocument& document : batch->documents) {
      const std::string& path = inputs.files[static_cast<std::size_t>(document.input)].path;
      const std::string_view bytes = batch->bytes;
      if (!visit(path, document.line, bytes.substr(document.begin, document.end - document.begin))) return;
    }
}

[[noreturn]] void refuse_question(const std::string& path, std::int64_t line, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}:{}: {}", path, line, problem), "mend the line");
}

void eval_text(const EvalSettings& s, const TextModel& model, DocumentLosses& losses) {
  each_document(s, !s.key.empty(), [&](const std::string& path, std::int64_t line, std::string_view bytes) {
    std::string text, problem;
    if (s.key.empty())
      text = model.bytes ? std::string(bytes) : utf8_of_bytes(bytes);
    else if (!json_text(bytes, s.key, text, problem))
      refuse_question(path, line, problem);
    std::vector<std::int32_t> ids = ids_of(model, text);
    if (!ids.empty() && (model.bytes || model.document_end))
      ids.push_back(start_of(model));  // that it ends is predicted too
    losses.add(ids, std::ssize(text));
    return !losses.full();
  });
}

int eval_choices(const EvalSettings& s, const TextModel& model, Generator& generator, std::int64_t length) {
  std::int64_t questions = 0, right = 0, right_by_length = 0;
  each_document(s, true, [&](const std::string& path, std::int64_t line, std::string_view text) {
    std::string problem;
    const std::optional<ChoiceQuestion> question = parse_question(text, problem);
    if (!question) refuse_question(path, line, problem);
    const ChoiceScore score = score_choices(
        generator, *question, s.between, start_of(model), [&](const std::string& one) { return ids_of(model, one); },
        length);
    right += static_cast<std::int64_t>(score.best) == question->answer;
    right_by_length += static_cast<std::int64_t>(score.best_by_length) == question->answer;
    if (s.documents)
      fmt::print("{}\n", nlohmann::ordered_json{{"question", questions},
                                                {"log_probabilities", score.sums},
                                                {"best", score.best},
                                                {"best_by_length", score.best_by_length},
                                                {"answer", question->answer}}
                             .dump());
    ++questions;
    return s.limit == 0 || questions < s.limit;
  });
  if (questions == 0)
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: there is no question in it", s.data),
                    "name a file with a JSON object per line");
  const auto share = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(questions); };
  const auto error = [&](std::int64_t count) {  // of the mean of zeros and ones
    const double p = share(count);
    return questions > 1 ? std::sqrt(p * (1 - p) / static_cast<double>(questions - 1)) : 0.0;
  };
  if (s.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"questions", questions},
                                              {"acc", share(right)},
                                              {"acc_stderr", error(right)},
                                              {"acc_norm", share(right_by_length)},
                                              {"acc_norm_stderr", error(right_by_length)}}
                           .dump());
  else
    fmt::print("{} questions: acc {:.4f} ± {:.4f}, acc_norm {:.4f} ± {:.4f}\n", grouped_digits(questions), share(right),
               error(right), share(right_by_length), error(right_by_length));
  return static_cast<int>(ExitCode::done);
}

int run_eval(const EvalSettings& s) {
  if (s.choices && (s.tokens || !s.key.empty() || s.stride > 0))
    refuse("--choices goes with none of --tokens, --key and --stride", "leave them out");
  if (!s.type.empty() && !s.tokens) refuse("--token-type is of a token file", "add --tokens");
  if (s.tokens && !s.key.empty())
    refuse("--key is of JSON lines, and --tokens says a token file", "keep one of the two");
  TextModel model = open_model(s);
  const std::int64_t length = s.seq > 0 ? s.seq : std::min<std::int64_t>(model.spec.max_positions, 2048);
  if (length > model.spec.max_positions)
    refuse(fmt::format("--seq {}: the model has {} positions", length, model.spec.max_positions),
           fmt::format("give {} or less", model.spec.max_positions));
  Ledger ledger;
  const auto memory = make_memory(s.device, ledger);
  const auto stream = make_stream(
      *memory, s.threads > 0 ? s.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  Generator generator(
      {.spec = model.spec, .positions = length, .prefill = 1, .score_tokens = length, .precision = s.precision},
      *memory, *stream);
  load_weights(generator, model);
  if (s.choices) return eval_choices(s, model, generator, length);
  DocumentLosses losses(s, model, generator, length);
  s.tokens ? eval_tokens(s, model, losses) : eval_text(s, model, losses);
  losses.print();
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_eval(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<EvalSettings>();
  CLI::App* command = app.add_subcommand("eval", "Say how well a model predicts texts, or answers questions");
  command->footer(
      "Perplexity, of all documents and of each: a window of --seq tokens moves by --stride, and each token counts "
      "once, "
      "with\n"
      "all that the window has before it. With --choices each line is {\"context\": text, \"choices\": [texts], "
      "\"answer\": from 0}:\n"
      "acc takes the choice with the highest log-likelihood, acc_norm that divided by the choice's characters.\n\n"
      "Examples: lockstep eval runs/mine test.txt --seq 512\n"
      "          lockstep eval my-hf-folder held-out.jsonl --key text --documents\n"
      "          lockstep eval runs/mine questions.jsonl --choices");
  command
      ->add_option("model", s->folder,
                   "Run folder (its newest whole checkpoint), checkpoint, Hugging Face folder or adapters")
      ->required()
      ->type_name("DIR");
  add_base_option(*command, s->base);
  command->add_option("data", s->data, "Text, JSON lines or a token file; or questions")->required()->type_name("FILE");
  command->add_option("--key", s->key, "The data are JSON lines, and this key has the text")->type_name("KEY");
  command->add_flag("--tokens", s->tokens, "The data are a token file");
  command->add_option("--token-type", s->type, "Of ids without a header: u16 or u32")
      ->check(CLI::IsMember({"u16", "u32"}))
      ->type_name("TYPE");
  command->add_flag("--choices", s->choices, "The data are questions with choices");
  command->add_option("--between", s->between, "Between a context and a choice [one blank]")->type_name("TEXT");
  command->add_option("--seq", s->seq, "Tokens of a window [the model's positions, at most 2048]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""))
      ->type_name("T");
  command->add_option("--stride", s->stride, "Tokens by which it moves [half a window]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""))
      ->type_name("S");
  command->add_option("--limit", s->limit, "Documents or questions at most; 0 = all [0]")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 60).description(""))
      ->type_name("N");
  command->add_flag("--documents", s->documents, "Print each document or question too");
  command->add_option("--threads", s->threads, "Threads of the kernels [all cores]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  add_device_option(*command, s->device);
  add_precision_option(*command, s->precision, "fp32");
  command->add_flag("--json", s->json,
                    "Print {documents, tokens, nats, loss, perplexity, bits_per_byte (of text)}, or {questions, acc, "
                    "acc_stderr, acc_norm, acc_norm_stderr}");
  command->callback([s, &chosen] { chosen = [s] { return run_eval(*s); }; });
}

}  // namespace lockstep
