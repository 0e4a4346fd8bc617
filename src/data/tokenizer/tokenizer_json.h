// A value of a tokenizer.json, with its place in the file for messages.
//
// The file comes from outside: parse_tokenizer_json() bounds its size, depth and number of values before anything is
// made of it, so what it can take of memory is bounded too (kMostTokenizerValues of some 100 bytes). Readers ask for
// what they know and then call only(): a field that is there and means something unknown is refused by its name. A null
// is the same as absence.
//
// Failure: UserError (bad_input_file), one line with the file, the place and a remedy.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::size_t kMostTokenizerBytes = 128 << 20;
inline constexpr std::size_t kMostTokenizerValues = 8'000'000;
inline constexpr std::size_t kDeepestTokenizerValue = 24;
inline constexpr std::size_t kMostTokenizerSteps = 64;  // normalizers, pre-tokenizers or decoders in a row
inline constexpr std::int32_t kMostTokenIds = 1 << 22;  // ids are below: tables are as long as the largest

// `where` names the file in messages.
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& where);

class TokenizerNode {
 public:
  // Keeps references: the document must outlive this.
  TokenizerNode(const nlohmann::json& value, const std::string& where, std::string place);

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  const std::string& where() const { return *where_; }

  bool has(const char* key) const;                          // of an object: present and not null
  TokenizerNode at(const char* key) const;                  // of an object; refused when absent
  std::vector<TokenizerNode> items(const char* key) const;  // of a list; refused when absent
  std::string text(const char* key) const;
  std::string text(const char* key, std::string absent) const;
  bool flag(const char* key) const;
  bool flag(const char* key, bool absent) const;
  std::int64_t number(const char* key, std::int64_t most) const;  // whole, from 0
  char32_t character(const char* key) const;                      // a string of one character
  std::string type() const;                                       // the field "type"

  void require_object() const;
  // Refuses a field that is none of these (and not "type").
  void only(std::initializer_list<std::string_view> known) const;

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;
  // Refuses the whole piece: it asks for something that this version cannot do.
  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  const std::string* where_;
  std::string place_;
};

}  // namespace lockstep
