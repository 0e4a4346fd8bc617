// The keys of TOML tables, read by name, type and range into fields, and written back.
//
// Both sides are visitors of one list of keys: `visit("steps", spec.steps, Whole{1, 100})` reads with a TomlTable and
// writes with a TomlWriter, so a key cannot be read and forgotten in writing. A field whose key is absent keeps its
// value.
//
// A document may be changed from the command line: `sets` holds "section.key=value", and such a value overrides the
// file's. Errors then name the setting in place of the file's line.
//
// Every failure is a UserError of code usage, one line: "where:line: problem; remedy" or "--set x.y=z: problem;
// remedy". Text that is no TOML comes with the parser's reason.
#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "spec/model/model_spec.h"

namespace lockstep {

// The values that a key may have, ends included.
struct Whole {
  std::int64_t least = 1;
  std::int64_t most = kMaxSize;
};
inline constexpr Whole kSeedRange{0, std::numeric_limits<std::int64_t>::max()};  // TOML has no larger whole numbers

struct Real {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is out
  bool below_most = false;   // `most` itself is out
};

// Text that can be shown in a message and written to a file that reads back: UTF-8 without control characters.
bool is_plain_text(std::string_view text);

// A value with a text of its own, which T::parse() reads and text() writes; kRemedy says what the text may be.
template <class T>
concept TextValue = requires(const T& value, std::string_view text) {
  { T::parse(text) } -> std::same_as<std::optional<T>>;
  { value.text() } -> std::same_as<std::string>;
  { T::kRemedy } -> std::convertible_to<std::string_view>;
};

struct TomlState;

// One table of a document, which must outlive it. An absent table may be read like an empty one.
class TomlTable {
 public:
  bool has(std::string_view key) const;
  bool by_set(std::string_view key) const;  // its value comes from the command line

  // Without a Real any double is taken, NaN included: the caller checks (model_spec.h, validate).
  void operator()(std::string_view key, std::int64_t& field, Whole range = {}) const;
  void operator()(std::string_view key, std::uint64_t& field) const;  // from 0 to 2^63 - 1
  void operator()(std::string_view key, double& field) const;
  void operator()(std::string_view key, double& field, const Real& range) const;
  void operator()(std::string_view key, bool& field) const;
  void operator()(std::string_view key, std::string& field) const;               // no control characters
  void operator()(std::string_view key, std::vector<std::string>& field) const;  // one string, or an array of them
  void pair(std::string_view key, double& first, double& second, const Real& range) const;  // [first, second]

  // An enum of namespace lockstep with name_of() and values_of(), both found by the argument.
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum& field) const {
    std::vector<std::string_view> names;
    for (const Enum value : values_of(Enum{})) names.push_back(name_of(value));
    if (const auto chosen = choice(key, names)) field = values_of(Enum{})[*chosen];
  }
  std::optional<std::size_t> choice(std::string_view key, std::span<const std::string_view> names) const;

  template <TextValue Value>
  void operator()(std::string_view key, Value& field) const {
    if (!has(key)) return;
    std::string text;
    (*this)(key, text);
    const std::optional<Value> read = Value::parse(text);
    if (!read) refuse_text(key, text, Value::kRemedy);
    field = *read;
  }

  TomlTable table(std::string_view key) const;  // a table inside this one
  bool present() const { return table_ != nullptr; }
  std::vector<std::string> keys() const;  // all that are there, of a table whose keys are values themselves

  void require(std::string_view key) const;
  void refuse_unknown(std::span<const std::string_view> known) const;
  // The value in a message, as "true", "3", "'text'" or "an array"; only for keys that are there.
  std::string shown(std::string_view key) const;

  // Where the key is: "--set x.y=z" or "where:line"; for an absent one, where its table is.
  std::string place(std::string_view key) const;
  std::string place() const;
  std::string place_of_all() const;  // of the table's values together: the settings among them are named too
  [[noreturn]] void refuse(std::string_view key, const std::string& problem, const std::string& remedy) const;

 private:
  friend class TomlDocument;
  TomlTable(const TomlState& state, const void* table, std::string title)
      : state_(&state), table_(table), title_(std::move(title)) {}
  const void* find(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, const std::string& expected) const;
  [[noreturn]] void refuse_text(std::string_view key, std::string_view text, std::string_view remedy) const;

  const TomlState* state_;
  const void* table_;  // of the parser's type, which stays out of this header; null when absent
  std::string title_;  // "model.rope_scaling"; empty at the top
};

struct TomlItem {
  std::string key, value;  // the value as it was typed: TOML, else a string
};

class TomlDocument {
 public:
  TomlDocument(std::string_view text, const std::string& where, std::size_t limit,
               std::span<const std::string> sets = {});
  ~TomlDocument();
  TomlDocument(const TomlDocument&) = delete;
  TomlDocument& operator=(const TomlDocument&) = delete;

  TomlTable top() const;

  // Removes the file's value of a key, not one from the command line: for a choice made there that unmakes the file's.
  void drop(std::string_view section, std::string_view key);
  // Puts these in the place of all that the file says in a table; a setting overrides them too. Messages name the
  // option that they come from.
  void replace(std::string_view section, std::string_view option, std::span<const TomlItem> items);
  bool set(std::string_view section, std::string_view key) const;  // whether the command line holds section.key

 private:
  std::unique_ptr<TomlState> state_;
};

// A value as TOML writes it: quoted and escaped; a number that reads back as a float.
std::string toml_string(std::string_view value);
std::string toml_number(double value);

// Writes tables one after the other. A table inside another goes after all the other's keys.
class TomlWriter {
 public:
  void table(std::string_view title);
  void operator()(std::string_view key, std::int64_t value, Whole = {});
  void operator()(std::string_view key, std::uint64_t value);
  void operator()(std::string_view key, double value);  // the shortest form that reads back to the same bits
  void operator()(std::string_view key, double value, const Real&) { (*this)(key, value); }
  void operator()(std::string_view key, bool value);
  void operator()(std::string_view key, const std::string& value);
  void operator()(std::string_view key, const std::vector<std::string>& value);
  void operator()(std::string_view key, const char* value) = delete;
  void pair(std::string_view key, double first, double second, const Real& = {});
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum value) { (*this)(key, std::string(name_of(value))); }
  void operator()(std::string_view key, const TextValue auto& value) { (*this)(key, value.text()); }
  std::string text() && { return std::move(text_); }

 private:
  void line(std::string_view key, std::string_view value);
  std::string text_;
};

// From the file's folder, or from where the program runs when it was typed there. Absolute, so that a resolved run file
// means the same from its own folder. What is no path is refused.
std::string absolute_path(const TomlTable& table, std::string_view key, const std::string& path,
                          const std::filesystem::path& base_folder);

}  // namespace lockstep
