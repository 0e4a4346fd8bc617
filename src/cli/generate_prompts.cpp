#include "cli/generate_prompts.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/terminal.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/bounded_json.h"
#include "spec/text/text_input.h"
#include "train/generator.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostFileBytes = 64 << 20;
constexpr std::size_t kMostLineBytes = 1 << 20;

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

void require_text(const PromptSettings& s, const TextModel& source) {
  if (!source.bytes && !source.text)
    throw UserError(
        ExitCode::usage,
        fmt::format("the tokens of {} are not bytes of text, and it has no tokenizer.json", quote_text(s.folder)),
        "give the prompt as ids, such as --tokens \"1 5 9\"");
}

std::vector<std::int32_t> ids_of(const std::string& text, const TextModel& source) {
  return source.bytes ? encode_bytes(text) : source.text->encode(text, Specials::add);
}

// A prompt that can be read: an empty one begins a document. `where`: what messages call it.
std::vector<std::int32_t> checked(std::vector<std::int32_t> ids, const TextModel& source,
                                  const std::string& where = "the prompt") {
  if (ids.empty()) {
    if (!source.document_end)
      throw UserError(ExitCode::usage, "--tokens holds no token id", "give at least one, such as --tokens \"1 5 9\"");
    ids.push_back(*source.document_end);
  }
  require_in_vocabulary(ids, source.spec);
  if (std::ssize(ids) > source.spec.max_positions)
    throw UserError(
        ExitCode::usage,
        fmt::format("{} has {} tokens and the model {} positions", where, ids.size(), source.spec.max_positions),
        fmt::format("give at most {}", source.spec.max_positions));
  return ids;
}

// Prompts that are known from the beginning.
class GivenPrompts final : public Prompts {
 public:
  GivenPrompts(std::vector<std::vector<std::int32_t>> all, const PromptSettings& s, const ModelSpec& spec)
      : all_(std::move(all)) {
    count_ = std::ssize(all_);
    // The last token is given and not read.
    for (const auto& ids : all_)
      positions_ = std::max(positions_, std::min(spec.max_positions, std::ssize(ids) + s.max_tokens - 1));
  }
  std::optional<std::vector<std::int32_t>> next(const std::atomic<bool>&) override {
    return at_ < all_.size() ? std::optional(all_[at_++]) : std::nullopt;
  }

 private:
  std::vector<std::vector<std::int32_t>> all_;
  std::size_t at_ = 0;
};

class Conversation final : public Prompts {
 public:
  Conversation(ChatTemplate chat, nlohmann::ordered_json messages, const PromptSettings& s, const TextModel& source)
      : chat_(std::move(chat)),
        messages_(std::move(messages)),
        source_(source),
        where_(s.messages.empty() ? "the prompt" : s.messages) {
    const bool begun = !messages_.empty() && messages_.back()["role"] != "system";
    goes_on_ = !begun;
    if (begun) {
      first_ = prompt();
      positions_ = std::min(source.spec.max_positions, std::ssize(*first_) + s.max_tokens - 1);
    } else {
      positions_ = std::min(source.spec.max_positions, s.context > 0 ? s.context : kUsualContext);
    }
  }

  std::optional<std::vector<std::int32_t>> next(const std::atomic<bool>& stop) override {
    if (first_) return std::exchange(first_, std::nullopt);
    if (!goes_on_) return std::nullopt;
    std::optional<std::string> line;
    do line = read_line(stop);
    while (line && line->empty());
    if (!line) return std::nullopt;
    messages_.push_back({{"role", "user"}, {"content", *line}});
    std::vector<std::int32_t> ids = prompt();
    if (std::ssize(ids) > positions_)
      throw UserError(ExitCode::usage,
                      fmt::format("the conversation has {} tokens, and there is room for {}", ids.size(), positions_),
                      source_.spec.max_positions > positions_
                          ? fmt::format("begin a new one, or use --context {}", source_.spec.max_positions)
                          : "begin a new one");
    return ids;
  }
  void answered(const std::string& text) override { messages_.push_back({{"role", "assistant"}, {"content", text}}); }

 private:
  std::vector<std::int32_t> prompt() const {
    const std::string text = chat_.render(messages_, AnswerBegins::yes).text;
    return checked(source_.bytes ? encode_bytes(text) : source_.text->encode(text, Specials::skip), source_, where_);
  }

  // A line of standard input, without its end; nothing at the end of it, or when asked to stop.
  std::optional<std::string> read_line(const std::atomic<bool>& stop) {
    if (on_terminal(STDIN_FILENO)) fmt::print(stderr, "> ");
    for (std::size_t end; (end = pending_.find('\n')) == pending_.npos;) {
      constexpr int kLookMilliseconds = 100;
      pollfd watched{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      while (!stop && ::poll(&watched, 1, kLookMilliseconds) <= 0) {
      }
      if (stop) return std::nullopt;
      char room[4096];
      const auto bytes = ::read(STDIN_FILENO, room, sizeof room);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) {  // the last line may have no end
        std::string last = std::exchange(pending_, {});
        return last.empty() ? std::nullopt : std::optional(utf8_of_bytes(last));
      }
      pending_.append(room, static_cast<std::size_t>(bytes));
      if (pending_.size() > kMostLineBytes)
        throw UserError(ExitCode::usage, fmt::format("a line of more than {} KiB", kMostLineBytes >> 10),
                        "give turns of the conversation line by line");
    }
    const std::size_t end = pending_.find('\n');
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    return utf8_of_bytes(line);
  }

  ChatTemplate chat_;
  nlohmann::ordered_json messages_;
  const TextModel& source_;
  std::string where_;
  std::optional<std::vector<std::int32_t>> first_;
  bool goes_on_ = false;
  std::string pending_;
};

ChatTemplate template_of(const PromptSettings& s, const TextModel& source) {
  if (std::optional<ChatTemplate> chat = ChatTemplate::find(source.folder, source.prefix)) return std::move(*chat);
  throw UserError(ExitCode::bad_input_file, fmt::format("{} has no chat template", quote_text(s.folder)),
                  "put a chat_template.jinja into a Hugging Face folder, or use --prompt without --chat");
}

std::unique_ptr<Prompts> make_conversation(const PromptSettings& s, const TextModel& source) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!s.messages.empty())
    messages = parse_messages(read_text_file(s.messages, kMostFileBytes, ExitCode::bad_input_file), s.messages);
  else if (s.has_system)
    messages.push_back({{"role", "system"}, {"content", utf8_of_bytes(s.system)}});
  if (s.has_prompt) messages.push_back({{"role", "user"}, {"content", utf8_of_bytes(s.prompt)}});
  return std::make_unique<Conversation>(template_of(s, source), std::move(messages), s, source);
}

std::unique_ptr<Prompts> one_prompt(std::vector<std::int32_t> ids, const PromptSettings& s, const TextModel& source) {
  std::vector<std::vector<std::int32_t>> all;
  all.push_back(std::move(ids));
  return std::make_unique<GivenPrompts>(std::move(all), s, source.spec);
}

// A prompt per line: text, or in a .jsonl file an object with "prompt" or "messages".
std::unique_ptr<Prompts> prompts_of_file(const PromptSettings& s, const TextModel& source) {
  const std::string all = read_text_file(s.file, kMostFileBytes, ExitCode::bad_input_file);
  const bool json = s.file.ends_with(".jsonl");
  std::optional<ChatTemplate> chat;
  std::vector<std::vector<std::int32_t>> prompts;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    std::string line = utf8_of_bytes(std::string_view(all).substr(at, end - at));
    if (line.ends_with('\r')) line.pop_back();
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{}: line {}", s.file, number);
    if (!json) {
      prompts.push_back(checked(ids_of(line, source), source, where));
      continue;
    }
    std::string problem;
    const std::optional<nlohmann::ordered_json> parsed = parse_bounded_json<nlohmann::ordered_json>(line, {}, problem);
    if (!parsed)
      throw UserError(ExitCode::bad_input_file, where + " " + problem,
                      R"(write lines such as {"prompt": "Once upon"})");
    const nlohmann::ordered_json& object = *parsed;
    if (object.is_object() && object.contains("prompt") && object["prompt"].is_string()) {
      prompts.push_back(checked(ids_of(object["prompt"].get<std::string>(), source), source, where));
    } else if (object.is_object() && object.contains("messages")) {
      if (!chat) chat = template_of(s, source);
      const std::string text = chat->render(parse_messages(line, where), AnswerBegins::yes).text;
      prompts.push_back(
          checked(source.bytes ? encode_bytes(text) : source.text->encode(text, Specials::skip), source, where));
    } else {
      throw UserError(ExitCode::bad_input_file, where + R"( is no object with "prompt" or "messages")",
                      R"(write lines such as {"prompt": "Once upon"})");
    }
  }
  if (prompts.empty())
    throw UserError(ExitCode::bad_input_file, fmt::format("{} holds no prompt", quote_text(s.file)),
                    "write one per line");
  return std::make_unique<GivenPrompts>(std::move(prompts), s, source.spec);
}

}  // namespace

std::unique_ptr<Prompts> make_prompts(const PromptSettings& s, const TextModel& source) {
  if (s.has_tokens) return one_prompt(checked(parse_ids(s.tokens), source), s, source);
  require_text(s, source);
  if (s.chat || !s.messages.empty()) return make_conversation(s, source);
  if (!s.file.empty()) return prompts_of_file(s, source);
  return one_prompt(checked(ids_of(s.prompt, source), source), s, source);
}

}  // namespace lockstep
