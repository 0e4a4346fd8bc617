// A value in a chat template: what Python's values of JSON are to Jinja.
//
// Lists and dictionaries are immutable and shared between the values that hold them, so handing one on costs nothing.
// Keys of a dictionary are strings, in the order in which they were written. Text counts in characters, as Python's
// does, and is valid UTF-8.
//
// Failure: TemplateError, which the template's runner (template_run.h) completes with a place.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

inline constexpr std::size_t kMostRenderedBytes = 64 << 20;  // of any text that a template makes

struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TemplateMacro;
class TemplateValue;

// What `namespace(…)` makes: the one thing that a template can change after it was made.
using TemplateNamespace = std::map<std::string, TemplateValue, std::less<>>;

class TemplateValue {
 public:
  struct Undefined {
    std::string name;  // of what was looked for
  };
  struct None {};
  using List = std::vector<TemplateValue>;
  using Entries = std::vector<std::pair<std::string, TemplateValue>>;
  using Shared = std::shared_ptr<const List>;
  using SharedEntries = std::shared_ptr<const Entries>;

  TemplateValue() : value_(Undefined{}) {}
  TemplateValue(Undefined undefined) : value_(std::move(undefined)) {}
  TemplateValue(None none) : value_(none) {}
  template <std::same_as<bool> T>  // nothing else: a pointer is no flag
  TemplateValue(T value) : value_(value) {}
  TemplateValue(std::int64_t value) : value_(value) {}
  TemplateValue(double value) : value_(value) {}
  TemplateValue(std::string value) : value_(std::move(value)) {}
  TemplateValue(List list) : value_(std::make_shared<const List>(std::move(list))) {}
  TemplateValue(Entries entries) : value_(std::make_shared<const Entries>(std::move(entries))) {}
  TemplateValue(TemplateNamespace* names) : value_(names) {}
  TemplateValue(const TemplateMacro* macro) : value_(macro) {}

  static TemplateValue of(const nlohmann::ordered_json& json);

  // Null where it is something else.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  const List* list() const;
  const Entries* entries() const;
  TemplateNamespace* names() const;
  const TemplateMacro* macro() const;
  bool undefined() const { return get<Undefined>() != nullptr; }
  bool none() const { return get<None>() != nullptr; }
  bool number() const { return get<bool>() || get<std::int64_t>() || get<double>(); }

  const char* kind() const;  // "a string"
  bool truth() const;
  // As {{ }} prints it: Python's str().
  std::string text() const;
  // As Python prints it inside a list.
  std::string repr() const;
  // As Python's json.dumps(ensure_ascii=False) writes it; indent 0: on one line.
  std::string json(std::int64_t indent) const;

  const TemplateValue* find(std::string_view key) const;  // of a dictionary or a namespace; null: it has none
  // What a `for` walks over: elements, characters, keys, or nothing where it is undefined.
  List elements() const;
  std::int64_t length() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::string, Shared, SharedEntries, TemplateNamespace*,
               const TemplateMacro*>
      value_;
};

bool equal(const TemplateValue& a, const TemplateValue& b);
bool less(const TemplateValue& a, const TemplateValue& b);                  // of two numbers or two strings
bool contains(const TemplateValue& container, const TemplateValue& value);  // `value in container`

double number_of(const TemplateValue& value);
std::int64_t whole_of(const TemplateValue& value, std::string_view what);
const std::string& string_of(const TemplateValue& value, std::string_view what);

}  // namespace lockstep
