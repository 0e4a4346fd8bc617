#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/bounded_json.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr const char* kFetchAgain = "fetch the file again, or save it again with Hugging Face tokenizers";

}  // namespace

nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& where) {
  const auto fail = [&where](const std::string& problem, const char* remedy) {
    throw UserError(ExitCode::bad_input_file, where + ": " + problem, remedy);
  };
  if (text.size() > kMostTokenizerBytes)
    fail(fmt::format("is larger than {} MiB", kMostTokenizerBytes >> 20), "check that it is the file you meant");
  if (const auto fault = find_json_fault(text, {.deepest = kDeepestTokenizerValue,
                                                .most_values = kMostTokenizerValues,
                                                .most_keys = kMostTokenizerValues})) {
    if (!fault->problem.empty()) fail(fault->problem, kFetchAgain);
    const std::size_t at = std::min(fault->invalid_at, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    fail(fmt::format("not valid JSON at line {}, byte {}", line, at), kFetchAgain);
  }
  nlohmann::json document = nlohmann::json::parse(text);
  if (!document.is_object()) fail(fmt::format("holds {}, not an object", document.type_name()), kFetchAgain);
  return document;
}

TokenizerNode::TokenizerNode(const nlohmann::json& value, const std::string& where, std::string place)
    : value_(&value), where_(&where), place_(std::move(place)) {}

void TokenizerNode::refuse(const std::string& problem, const std::string& remedy) const {
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: {}: {}", *where_, place_.empty() ? "the file" : place_, problem), remedy);
}

void TokenizerNode::unsupported(const std::string& what) const {
  refuse(what + " is not supported", "use a tokenizer without it (docs/tokenizers.md lists what there is)");
}

void TokenizerNode::require_object() const {
  if (!value_->is_object()) refuse(fmt::format("is {}, not an object", value_->type_name()), kFetchAgain);
}

bool TokenizerNode::has(const char* key) const {
  require_object();
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

TokenizerNode TokenizerNode::at(const char* key) const {
  if (!has(key)) refuse(fmt::format("has no '{}'", key), kFetchAgain);
  return {(*value_)[key], *where_, place_.empty() ? key : fmt::format("{}.{}", place_, key)};
}

std::vector<TokenizerNode> TokenizerNode::items(const char* key) const {
  const TokenizerNode list = at(key);
  if (!list.value().is_array()) list.refuse(fmt::format("is {}, not a list", list.value().type_name()), kFetchAgain);
  std::vector<TokenizerNode> nodes;
  for (std::size_t i = 0; i < list.value().size(); ++i)
    nodes.emplace_back(list.value()[i], *where_, fmt::format("{}[{}]", list.place(), i));
  return nodes;
}

std::string TokenizerNode::text(const char* key) const {
  const TokenizerNode node = at(key);
  if (!node.value().is_string()) node.refuse(fmt::format("is {}, not text", node.value().type_name()), kFetchAgain);
  return node.value().get<std::string>();
}

std::string TokenizerNode::text(const char* key, std::string absent) const {
  return has(key) ? text(key) : std::move(absent);
}

bool TokenizerNode::flag(const char* key) const {
  const TokenizerNode node = at(key);
  if (!node.value().is_boolean())
    node.refuse(fmt::format("is {}, not true or false", node.value().type_name()), kFetchAgain);
  return node.value().get<bool>();
}

bool TokenizerNode::flag(const char* key, bool absent) const { return has(key) ? flag(key) : absent; }

std::int64_t TokenizerNode::number(const char* key, std::int64_t most) const {
  const TokenizerNode node = at(key);
  const bool whole =
      node.value().is_number_unsigned() || (node.value().is_number_integer() && node.value().get<std::int64_t>() >= 0);
  if (!whole || node.value().get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    node.refuse(fmt::format("is no whole number from 0 to {}", most), kFetchAgain);
  return node.value().get<std::int64_t>();
}

char32_t TokenizerNode::character(const char* key) const {
  const std::string word = text(key);
  if (word.empty() || utf8_bytes(word[0]) != word.size())
    at(key).refuse(fmt::format("is {}, not one character", quote_text(word)), kFetchAgain);
  return utf8_character(word, 0);
}

std::string TokenizerNode::type() const { return text("type"); }

void TokenizerNode::only(std::initializer_list<std::string_view> known) const {
  require_object();
  for (const auto& [key, field] : value_->items()) {
    if (field.is_null() || key == "type") continue;
    if (std::find(known.begin(), known.end(), key) == known.end()) unsupported("field " + quote_text(key));
  }
}

}  // namespace lockstep
