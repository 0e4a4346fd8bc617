#include "spec/text/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "spec/model/model_spec.h"
#include "spec/text/bounded_json.h"
#include "spec/text/text_input.h"

namespace lockstep {

nlohmann::json parse_json_object(std::string_view text, const std::string& where) {
  const auto fail = [&where](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::bad_input_file, where + ": " + problem, remedy);
  };
  constexpr std::size_t kMostFields = 4'000'000;  // tensors of a model, by name
  if (const auto fault = find_json_fault(text, {.most_values = kMostFields, .most_keys = kMostFields})) {
    if (!fault->repeated.empty())
      fail(fmt::format("field {} appears twice", quote_text(fault->repeated)), "keep one of them");
    if (!fault->problem.empty()) fail(fault->problem, "mend it or fetch the file again");
    const std::size_t at = std::min(fault->invalid_at, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    fail(fmt::format("not valid JSON at line {}, byte {}", line, at), "mend it or fetch the file again");
  }
  const nlohmann::json document = nlohmann::json::parse(text);
  if (!document.is_object()) fail(fmt::format("holds {}, not an object", document.type_name()), "give a config.json");
  return document;
}

JsonFields::JsonFields(const nlohmann::json& object, std::string where, std::string inside)
    : object_(&object), where_(std::move(where)), inside_(std::move(inside)) {}

std::string JsonFields::name(std::string_view key) const {
  return quote_text(inside_.empty() ? std::string(key) : inside_ + "." + std::string(key));
}

void JsonFields::refuse(const std::string& problem, const std::string& remedy) const {
  throw UserError(ExitCode::bad_input_file, where_ + ": " + problem, remedy);
}

void JsonFields::wrong(std::string_view key, std::string_view expected, const nlohmann::json& value) const {
  refuse(fmt::format("field {} is {}", name(key), value.is_number() ? value.dump() : value.type_name()),
         fmt::format("it must be {}", expected));
}

bool JsonFields::has(std::string_view key) const {
  const auto at = object_->find(key);
  return at != object_->end() && !at->is_null();
}

bool JsonFields::is_null(std::string_view key) const {
  const auto at = object_->find(key);
  return at != object_->end() && at->is_null();
}

const nlohmann::json* JsonFields::find(std::string_view key) {
  read_.emplace(key);
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

std::optional<std::int64_t> JsonFields::size(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  // An unsigned value above 63 bits would turn negative in get<int64_t>, so it is compared as what it is.
  const bool good = value->is_number_unsigned() && value->get<std::uint64_t>() >= 1 &&
                    value->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxSize);
  if (!good) wrong(key, "a whole number from 1 to 2^40", *value);
  return value->get<std::int64_t>();
}

std::int64_t JsonFields::required_size(std::string_view key) {
  const auto value = size(key);
  if (!value) refuse(fmt::format("field {} is missing", name(key)), "add it; a model has no size without it");
  return *value;
}

std::optional<double> JsonFields::number(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong(key, "a number", *value);
  return value->get<double>();
}

std::optional<bool> JsonFields::flag(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong(key, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> JsonFields::word(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(key, "a string", *value);
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::words(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return {};
  const auto is_string = [](const nlohmann::json& item) { return item.is_string(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_string)) {
    wrong(key, "a list of strings", *value);
  }
  return value->get<std::vector<std::string>>();
}

std::optional<JsonFields> JsonFields::object(std::string_view key) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) wrong(key, "an object", *value);
  return JsonFields(*value, where_, inside_.empty() ? std::string(key) : inside_ + "." + std::string(key));
}

void JsonFields::finish(std::span<const std::string_view> harmless) const {
  for (const auto& [key, value] : object_->items()) {
    const bool known = read_.contains(key) || std::find(harmless.begin(), harmless.end(), key) != harmless.end();
    if (!known && !value.is_null()) {
      refuse(fmt::format("unknown field {} may change the arithmetic", name(key)), "remove it if it does not");
    }
  }
}

}  // namespace lockstep
