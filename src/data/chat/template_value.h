// A value in a chat template: what Python's values of JSON are to Jinja.
//
// Texts, lists and dictionaries are immutable and shared between the values that hold them: handing one on costs
// nothing. Keys of a dictionary are strings, in the order in which they were written. Text counts in characters, as
// Python's does, and is valid UTF-8.
//
// A template comes from outside: a value is nested at most kDeepestTemplateValue deep, a text that one makes is at most
// kMostRenderedBytes, and weight() says before a value is walked what that can cost (template_meter.h adds it up).
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
inline constexpr std::size_t kMostElements = 1'000'000;      // of any list that it makes
inline constexpr int kDeepestTemplateValue = 100;            // lists and dictionaries within each other

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
  // What is inside a list or a dictionary, counted when it is made.
  struct Size {
    std::size_t weight = 0;   // bytes of all values in it, those of a shared one as often as it is there
    std::size_t shallow = 0;  // bytes of its elements, without what they share with others
    int depth = 1;
  };
  struct SizedList {
    List values;
    Size size;
  };
  struct SizedEntries {
    Entries values;
    Size size;
  };

  TemplateValue() : value_(Undefined{}) {}
  TemplateValue(Undefined undefined) : value_(std::move(undefined)) {}
  TemplateValue(None none) : value_(none) {}
  template <std::same_as<bool> T>  // nothing else: a pointer is no flag
  TemplateValue(T value) : value_(value) {}
  TemplateValue(std::int64_t value) : value_(value) {}
  TemplateValue(double value) : value_(value) {}
  TemplateValue(std::string value) : value_(std::make_shared<const std::string>(std::move(value))) {}
  TemplateValue(List list);
  TemplateValue(Entries entries);
  TemplateValue(TemplateNamespace* names) : value_(names) {}
  TemplateValue(const TemplateMacro* macro) : value_(macro) {}

  static TemplateValue of(const nlohmann::ordered_json& json);

  // Null where it is something else.
  template <class T>
  const T* get() const {
    if constexpr (std::same_as<T, std::string>) {
      const auto* shared = std::get_if<std::shared_ptr<const std::string>>(&value_);
      return shared ? shared->get() : nullptr;
    } else {
      return std::get_if<T>(&value_);
    }
  }
  const List* list() const;
  const Entries* entries() const;
  TemplateNamespace* names() const;
  const TemplateMacro* macro() const;
  bool undefined() const { return get<Undefined>() != nullptr; }
  bool none() const { return get<None>() != nullptr; }
  bool number() const { return get<bool>() || get<std::int64_t>() || get<double>(); }
  Size size() const;  // of anything
  std::size_t weight() const { return size().weight; }

  const char* kind() const;  // "a string"
  bool truth() const;
  // As {{ }} prints it: Python's str().
  std::string text() const;
  // As Python prints it inside a list.
  std::string repr() const;
  // As Python's json.dumps(ensure_ascii=False) writes it; indent 0: on one line.
  std::string json(std::int64_t indent) const;

  const TemplateValue* find(std::string_view key) const;  // of a dictionary or a namespace; null: it has none
  // What a `for` walks over: elements, characters, keys, or nothing where it is undefined. At most kMostElements.
  List elements() const;
  std::int64_t length() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const SizedList>, std::shared_ptr<const SizedEntries>, TemplateNamespace*,
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
