// The fields of one JSON object, read by name and type, with an account of which were read.
//
// A reader asks for what it knows; finish() then refuses whatever nobody asked for. So there is no list of known fields
// to forget an entry in: a field either acts, is named as harmless, or is refused. A null is the same as absence.
//
// Every failure is a UserError of code bad_input_file, one line with the source and the field's name.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Parses a document whose top is an object. Repeated keys are refused: readers disagree on which one counts.
nlohmann::json parse_json_object(std::string_view text, const std::string& where);

class JsonFields {
 public:
  // Keeps a reference to the object, which must outlive this. `inside` is the name of the enclosing field, if any.
  JsonFields(const nlohmann::json& object, std::string where, std::string inside = "");

  bool has(std::string_view key) const;      // present and not null; does not count as read
  bool is_null(std::string_view key) const;  // present as null

  std::optional<std::int64_t> size(std::string_view key);  // a whole number from 1 to kMaxSize
  std::int64_t required_size(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<bool> flag(std::string_view key);
  std::optional<std::string> word(std::string_view key);
  std::vector<std::string> words(std::string_view key);  // empty when absent
  std::optional<JsonFields> object(std::string_view key);

  // Refuses the object when it holds a field that was neither read nor is in `harmless`.
  void finish(std::span<const std::string_view> harmless) const;

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;
  std::string name(std::string_view key) const;  // the field's full name in quotes, for messages

 private:
  const nlohmann::json* find(std::string_view key);  // marks it as read; null pointer when absent
  [[noreturn]] void wrong(std::string_view key, std::string_view expected, const nlohmann::json& value) const;

  const nlohmann::json* object_;
  std::string where_;
  std::string inside_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace lockstep
