#include "data/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer_json.h"
#include "spec/text/bounded_json.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostConfigBytes = 16 << 20;
constexpr std::size_t kMostMessagesBytes = 16 << 20;
constexpr auto kTokenNames = std::to_array<const char*>(
    {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"});

// "chat_template" of a tokenizer_config.json: a text, or several with names.
std::string template_of(const TokenizerNode& config) {
  if (!config.at("chat_template").value().is_array()) return config.text("chat_template");
  for (const TokenizerNode& one : config.items("chat_template"))
    if (one.text("name") == "default") return one.text("template");
  config.at("chat_template").refuse("none of these templates is named 'default'", "name one of them so");
}

bool has_generation(const std::vector<TemplateStatement>& statements) {
  return std::ranges::any_of(statements, [](const TemplateStatement& s) {
    return s.kind == TemplateStatement::Kind::generation || std::ranges::any_of(s.bodies, has_generation);
  });
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& folder, std::string_view prefix) {
  std::error_code ignored;
  const auto file = [&](const char* name) { return folder / (std::string(prefix) + name); };
  std::optional<nlohmann::json> config;
  const fs::path config_file = file("tokenizer_config.json");
  if (fs::exists(config_file, ignored))
    config = parse_tokenizer_json(read_text_file(config_file, kMostConfigBytes, ExitCode::bad_input_file),
                                  config_file.string());
  TemplateValue::Entries tokens;
  const std::string where = config_file.string();
  if (config) {
    const TokenizerNode node(*config, where, "");
    for (const char* name : kTokenNames)
      if (node.has(name)) {
        const TokenizerNode token = node.at(name);
        tokens.emplace_back(name, token.value().is_object() ? token.text("content") : node.text(name));
      }
  }
  if (const fs::path own = file("chat_template.jinja"); fs::exists(own, ignored))
    return ChatTemplate(read_text_file(own, kMostTemplateBytes, ExitCode::bad_input_file), std::move(tokens),
                        own.string());
  if (config) {
    const TokenizerNode node(*config, where, "");
    if (node.has("chat_template")) return ChatTemplate(template_of(node), std::move(tokens), where);
  }
  if (const fs::path own = file("chat_template.json"); fs::exists(own, ignored)) {
    const std::string name = own.string();
    const nlohmann::json json =
        parse_tokenizer_json(read_text_file(own, kMostConfigBytes, ExitCode::bad_input_file), name);
    return ChatTemplate(TokenizerNode(json, name, "").text("chat_template"), std::move(tokens), name);
  }
  return std::nullopt;
}

ChatTemplate::ChatTemplate(std::string_view source, TemplateValue::Entries tokens, std::string where)
    : statements_(parse_template(source, where)),
      tokens_(std::move(tokens)),
      where_(std::move(where)),
      encloses_answers_(has_generation(statements_)) {
  std::string all(source);
  for (const auto& [name, token] : tokens_) all += '\0' + name + '\0' + token.text();
  fingerprint_ = checksum(std::as_bytes(std::span(all)));
}

RenderedTemplate ChatTemplate::render(const nlohmann::ordered_json& messages, AnswerBegins answer) const {
  TemplateValue::Entries names = tokens_;
  names.emplace_back("messages", TemplateValue::of(messages));
  names.emplace_back("add_generation_prompt", answer == AnswerBegins::yes);
  // Templates ask whether there are tools and documents; there are none.
  names.emplace_back("tools", TemplateValue::None{});
  names.emplace_back("documents", TemplateValue::None{});
  return run_template(statements_, std::move(names), where_);
}

nlohmann::ordered_json parse_messages(std::string_view json, const std::string& where) {
  const auto refuse = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file, where + ": " + problem,
                    R"(write [{"role": "user", "content": "…"}, …], or an object whose "messages" are that)");
  };
  if (json.size() > kMostMessagesBytes) refuse(fmt::format("is larger than {} MiB", kMostMessagesBytes >> 20));
  std::string problem;
  std::optional<nlohmann::ordered_json> parsed = parse_bounded_json<nlohmann::ordered_json>(json, {}, problem);
  if (!parsed) refuse(problem);
  nlohmann::ordered_json all = std::move(*parsed);
  if (all.is_object() && all.contains("messages")) all = nlohmann::ordered_json(all["messages"]);
  if (!all.is_array()) refuse("holds no list of messages");
  if (all.empty()) refuse("holds no message");
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].is_object() || !all[i].contains("role") || !all[i]["role"].is_string())
      refuse(fmt::format("message {} has no \"role\"", i + 1));
  return all;
}

}  // namespace lockstep
