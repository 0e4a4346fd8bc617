#include "data/chat/template_functions.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "data/chat/template_meter.h"
#include "data/chat/template_syntax.h"
#include "data/chat/template_text.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

using Arguments = TemplateArguments;
using List = TemplateValue::List;
using Meter = TemplateMeter;
using Value = TemplateValue;

constexpr auto kFilters = std::to_array<std::string_view>(
    {"abs", "capitalize", "count",      "d",       "default", "dictsort", "first",  "float",      "indent",
     "int", "items",      "join",       "last",    "length",  "list",     "lower",  "map",        "max",
     "min", "reject",     "rejectattr", "replace", "reverse", "safe",     "select", "selectattr", "string",
     "sum", "title",      "tojson",     "trim",    "unique",  "upper"});
constexpr auto kTests = std::to_array<std::string_view>(
    {"boolean", "defined", "divisibleby", "eq",       "equalto",  "even",     "false",       "float",    "ge",
     "gt",      "in",      "integer",     "iterable", "le",       "lessthan", "greaterthan", "lt",       "mapping",
     "ne",      "none",    "number",      "odd",      "sequence", "string",   "true",        "undefined"});

// Of ASCII.
char plain_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string indented(const std::string& text, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"width", "first", "blank"};
  arguments.only("indent", kNames);
  const Value* const width = arguments.find(0, "width");
  const Value* const first = arguments.find(1, "first");
  const Value* const blank = arguments.find(2, "blank");
  const std::string margin =
      !width ? "    "
      : width->get<std::string>()
          ? *width->get<std::string>()
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(whole_of(*width, "width"), 0, 1000)), ' ');
  std::string out;
  std::size_t at = 0;
  for (bool begins = true; at <= text.size(); begins = false) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (!begins) out += '\n';
    if (begins ? first && first->truth() : !line.empty() || (blank && blank->truth())) out += margin;
    out += line;
    if (out.size() > kMostRenderedBytes) throw TemplateError("a text becomes too long");
    at = end + 1;
  }
  return out;
}

const Value* find_field(const Value& value, std::string_view name, Meter& meter) {
  if (const auto* entries = value.entries()) meter.charge(entries->size() * 4);
  return value.find(name);
}

List pairs_of(const Value& value, std::string_view what, Meter& meter) {
  List pairs;
  if (value.undefined()) return pairs;
  const auto* entries = value.entries();
  if (!entries) throw TemplateError(fmt::format("{} of {}", what, value.kind()));
  for (const auto& [key, one] : *entries) {
    meter.charge(2 * sizeof(Value) + sizeof(Value::SizedList) + key.size());
    pairs.emplace_back(List{Value(key), one});
  }
  return pairs;
}

// a.b.c, or undefined where there is none.
Value field_of(const Value& value, const std::string& path, Meter& meter) {
  Value at = value;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const Value* const found = find_field(at, name, meter);
    if (!found) return Value::Undefined{name};
    at = Value(*found);
    begin = end + 1;
  }
  return at;
}

// select, reject, selectattr, rejectattr.
List chosen(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
  const bool by_field = name.ends_with("attr"), keeps = name.starts_with("select");
  const std::size_t at = by_field ? 1 : 0;
  if (!arguments.named.empty() || arguments.values.size() < at)
    throw TemplateError(fmt::format("'{}' needs {}", name, by_field ? "a field's name" : "a test's name"));
  const bool has_test = arguments.values.size() > at;
  const std::string test = has_test ? string_of(arguments.values[at], "a test") : "";
  if (has_test && !is_template_test(test)) throw TemplateError(fmt::format("the test '{}' is not supported", test));
  Arguments of_test;
  for (std::size_t i = at + 1; i < arguments.values.size(); ++i) of_test.values.push_back(arguments.values[i]);
  List out;
  for (Value& one : meter.elements(value)) {
    const Value asked = by_field ? field_of(one, string_of(arguments.values[0], "a field"), meter) : one;
    if ((has_test ? apply_test(test, asked, of_test, meter) : asked.truth()) == keeps) out.push_back(std::move(one));
  }
  return out;
}

List mapped(const Value& value, const Arguments& arguments, Meter& meter) {
  List out;
  if (const Value* const field = arguments.find(arguments.values.size(), "attribute")) {
    constexpr std::string_view kNames[] = {"attribute", "default"};
    Arguments named{.values = {}, .named = arguments.named};
    named.only("map", kNames);
    const Value* const otherwise = arguments.find(arguments.values.size(), "default");
    for (const Value& one : meter.elements(value)) {
      Value found = field_of(one, string_of(*field, "attribute"), meter);
      out.push_back(found.undefined() && otherwise ? *otherwise : std::move(found));
    }
    return out;
  }
  if (arguments.values.empty()) throw TemplateError("'map' needs attribute=… or a filter's name");
  const std::string& filter = string_of(arguments.values[0], "a filter");
  if (!is_template_filter(filter)) throw TemplateError(fmt::format("the filter '{}' is not supported", filter));
  Arguments of_filter{.values = {arguments.values.begin() + 1, arguments.values.end()}, .named = arguments.named};
  for (const Value& one : meter.elements(value)) out.push_back(apply_filter(filter, one, of_filter, meter));
  return out;
}

Value extreme(const Value& value, bool most, Meter& meter) {
  const List elements = meter.elements(value);
  if (elements.empty()) return Value::Undefined{most ? "max" : "min"};
  const auto found = most ? std::max_element(elements.begin(), elements.end(), less)
                          : std::min_element(elements.begin(), elements.end(), less);
  return *found;
}

Value added(const Value& value, Meter& meter) {
  std::int64_t whole = 0;
  double real = 0;
  bool is_real = false;
  for (const Value& one : meter.elements(value)) {
    if (one.get<double>()) {
      is_real = true;
      real += number_of(one);
    } else if (__builtin_add_overflow(whole, whole_of(one, "what is added up"), &whole)) {
      throw TemplateError("a sum is too large");
    }
  }
  if (is_real) return real + static_cast<double>(whole);
  return whole;
}

Value to_whole(const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default"};
  arguments.only("int", kNames);
  const Value* const given = arguments.find(0, "default");
  const Value otherwise = given ? *given : Value(std::int64_t{0});
  if (const auto* text = value.get<std::string>()) {
    const std::string plain = stripped(*text, nullptr, kLeft | kRight);
    double real = 0;
    std::int64_t whole = 0;
    const char* const end = plain.data() + plain.size();
    const char* const begin = plain.data() + (plain.starts_with('+') ? 1 : 0);
    if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc() && read.ptr == end) return whole;
    if (const auto read = std::from_chars(begin, end, real);
        read.ec == std::errc() && read.ptr == end && std::abs(real) < 9e18)
      return static_cast<std::int64_t>(real);
    return otherwise;
  }
  if (!value.number()) return otherwise;
  const double real = number_of(value);
  if (value.get<double>() && !(std::abs(real) < 9e18)) return otherwise;
  return value.get<double>() ? Value(static_cast<std::int64_t>(real)) : Value(whole_of(value, "int"));
}

Value to_real(const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default"};
  arguments.only("float", kNames);
  const Value* const otherwise = arguments.find(0, "default");
  if (value.number()) return number_of(value);
  if (const auto* text = value.get<std::string>()) {
    const std::string plain = stripped(*text, nullptr, kLeft | kRight);
    double real = 0;
    const char* const end = plain.data() + plain.size();
    const auto read = std::from_chars(plain.data() + (plain.starts_with('+') ? 1 : 0), end, real);
    if (read.ec == std::errc() && read.ptr == end) return real;
  }
  return otherwise ? *otherwise : Value(0.0);
}

std::string to_json(const Value& value, const Arguments& arguments, Meter& meter) {
  constexpr std::string_view kNames[] = {"ensure_ascii", "indent"};
  arguments.only("tojson", kNames);
  if (const Value* const ascii = arguments.find(0, "ensure_ascii"); ascii && ascii->truth())
    throw TemplateError("'tojson' with ensure_ascii is not supported");
  const Value* const indent = arguments.find(1, "indent");
  meter.charge(value.weight());
  return value.json(indent && !indent->none() ? std::clamp<std::int64_t>(whole_of(*indent, "indent"), 0, 100) : 0);
}

List without_repeats(const Value& value, Meter& meter) {
  List out;
  for (Value& one : meter.elements(value)) {
    const bool seen = std::any_of(out.begin(), out.end(), [&](const Value& other) {
      const auto *a = one.get<std::string>(), *b = other.get<std::string>();
      meter.charge(sizeof(Value));
      return a && b ? std::equal(a->begin(), a->end(), b->begin(), b->end(),
                                 [](char x, char y) { return plain_lower(x) == plain_lower(y); })
                    : meter.equal(one, other);
    });
    if (!seen) out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

bool is_template_filter(std::string_view name) {
  return std::find(kFilters.begin(), kFilters.end(), name) != kFilters.end();
}
bool is_template_test(std::string_view name) { return std::find(kTests.begin(), kTests.end(), name) != kTests.end(); }

const TemplateValue* TemplateArguments::find(std::size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

void TemplateArguments::only(std::string_view function, std::span<const std::string_view> names) const {
  if (values.size() > names.size())
    throw TemplateError(fmt::format("'{}' takes {} arguments, not {}", function, names.size(), values.size()));
  for (const auto& [key, value] : named)
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw TemplateError(fmt::format("'{}' with {} is not supported", function, quote_text(key)));
}

namespace {

Value filtered(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter) {
  const auto none = [&] { arguments.only(name, {}); };
  if (name == "default" || name == "d") {
    constexpr std::string_view kNames[] = {"default_value", "boolean"};
    arguments.only(name, kNames);
    const Value* const otherwise = arguments.find(0, "default_value");
    const Value* const falsy = arguments.find(1, "boolean");
    if (!value.undefined() && (value.truth() || !falsy || !falsy->truth())) return value;
    return otherwise ? *otherwise : Value(std::string());
  }
  if (name == "tojson") return to_json(value, arguments, meter);
  if (name == "trim") {
    constexpr std::string_view kNames[] = {"chars"};
    arguments.only(name, kNames);
    return stripped(meter.text(value), arguments.find(0, "chars"), kLeft | kRight);
  }
  if (name == "join") {
    constexpr std::string_view kNames[] = {"d", "attribute"};
    arguments.only(name, kNames);
    const Value* const by = arguments.find(0, "d");
    List parts = meter.elements(value);
    if (const Value* const field = arguments.find(1, "attribute"))
      for (Value& one : parts) one = field_of(one, string_of(*field, "attribute"), meter);
    for (const Value& one : parts) meter.charge(one.weight());
    return joined(parts, by ? meter.text(*by) : "");
  }
  if (name == "replace") {
    constexpr std::string_view kNames[] = {"old", "new", "count"};
    arguments.only(name, kNames);
    const Value *const from = arguments.find(0, "old"), *const to = arguments.find(1, "new"),
                       *const most = arguments.find(2, "count");
    if (!from || !to) throw TemplateError("'replace' needs two texts");
    return replaced(meter.text(value), meter.text(*from), meter.text(*to),
                    most && !most->none() ? whole_of(*most, "count") : -1);
  }
  if (name == "map") return mapped(value, arguments, meter);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return chosen(name, value, arguments, meter);
  if (name == "int") return to_whole(value, arguments);
  if (name == "float") return to_real(value, arguments);
  if (name == "indent") return indented(meter.text(value), arguments);
  none();
  if (name == "length" || name == "count") return value.length();
  if (name == "upper") return upper_case(meter.text(value));
  if (name == "lower") return lower_case(meter.text(value));
  if (name == "capitalize") return capitalized(meter.text(value));
  if (name == "title") return titled(meter.text(value), false);
  if (name == "string") return meter.text(value);
  if (name == "safe") return value;
  if (name == "list") return meter.elements(value);
  if (name == "items") return pairs_of(value, "items", meter);
  if (name == "dictsort") {
    List pairs = pairs_of(value, "dictsort", meter);
    const auto key = [&](const Value& pair) {
      meter.charge((*pair.list())[0].weight());
      return lower_case(string_of((*pair.list())[0], "a key"));
    };
    std::stable_sort(pairs.begin(), pairs.end(), [&](const Value& a, const Value& b) { return key(a) < key(b); });
    return pairs;
  }
  if (name == "max" || name == "min") return extreme(value, name == "max", meter);
  if (name == "sum") return added(value, meter);
  if (name == "unique") return without_repeats(value, meter);
  if (name == "reverse") {
    List elements = meter.elements(value);
    std::reverse(elements.begin(), elements.end());
    if (value.get<std::string>()) return joined(elements, "");
    return elements;
  }
  if (name == "first" || name == "last") {
    const List elements = meter.elements(value);
    if (elements.empty()) return Value::Undefined{std::string(name)};
    return name == "first" ? elements.front() : elements.back();
  }
  // abs, the last of the list
  if (value.get<double>()) return std::abs(number_of(value));
  const std::int64_t whole = whole_of(value, "abs");
  if (whole == INT64_MIN) throw TemplateError("a number is too large");
  return whole < 0 ? -whole : whole;
}

}  // namespace

TemplateValue apply_filter(std::string_view name, const TemplateValue& value, const TemplateArguments& arguments,
                           TemplateMeter& meter) {
  Value made = filtered(name, value, arguments, meter);
  meter.charge_made(made);
  return made;
}

bool apply_test(std::string_view name, const TemplateValue& value, const TemplateArguments& arguments,
                TemplateMeter& meter) {
  meter.charge(sizeof(Value));
  const auto other = [&]() -> const Value& {
    const Value* const given = arguments.find(0, "other");
    if (!given) throw TemplateError(fmt::format("the test '{}' needs a value", name));
    return *given;
  };
  if (name == "defined") return !value.undefined();
  if (name == "undefined") return value.undefined();
  if (name == "none") return value.none();
  if (name == "string") return value.get<std::string>() != nullptr;
  if (name == "boolean") return value.get<bool>() != nullptr;
  if (name == "true") return value.get<bool>() && value.truth();
  if (name == "false") return value.get<bool>() && !value.truth();
  if (name == "integer") return value.get<std::int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "number") return value.number();
  if (name == "mapping") return value.entries() != nullptr;
  if (name == "iterable" || name == "sequence")
    return value.list() || value.entries() || value.get<std::string>() || value.undefined();
  if (name == "odd") return whole_of(value, "what is odd") % 2 != 0;
  if (name == "even") return whole_of(value, "what is even") % 2 == 0;
  if (name == "divisibleby") {
    const std::int64_t by = whole_of(other(), "a divisor");
    if (by == 0) throw TemplateError("a division by zero");
    return by == -1 || whole_of(value, "what is divided") % by == 0;
  }
  if (name == "in") return meter.contains(other(), value);
  if (name == "eq" || name == "equalto") return meter.equal(value, other());
  if (name == "ne") return !meter.equal(value, other());
  if (name == "lt" || name == "lessthan") return less(value, other());
  if (name == "gt" || name == "greaterthan") return less(other(), value);
  if (name == "le") return !less(other(), value);
  return !less(value, other());  // ge, the last of the list
}

TemplateValue call_method(const TemplateValue& value, std::string_view name, const TemplateArguments& arguments,
                          TemplateMeter& meter) {
  const auto refuse_more = [&](std::size_t most) {
    if (!arguments.named.empty() || arguments.values.size() > most)
      throw TemplateError(fmt::format("'{}' takes at most {} arguments, without names", name, most));
  };
  const auto at = [&](std::size_t i) { return i < arguments.values.size() ? &arguments.values[i] : nullptr; };
  const auto text_at = [&](std::size_t i) -> const std::string& {
    if (!at(i)) throw TemplateError(fmt::format("'{}' needs {} arguments", name, i + 1));
    return string_of(*at(i), fmt::format("an argument of '{}'", name));
  };
  if (const auto* text = value.get<std::string>()) {
    meter.charge(text->size());
    if (name == "split") {
      constexpr std::string_view kNames[] = {"sep", "maxsplit"};
      arguments.only(name, kNames);
      const Value* const most = arguments.find(1, "maxsplit");
      return split(*text, arguments.find(0, "sep"), most ? whole_of(*most, "maxsplit") : -1);
    }
    refuse_more(
        name == "replace"                                                                                          ? 3
        : name.ends_with("strip") || name.ends_with("with") || name == "find" || name == "count" || name == "join" ? 1
                                                                                                                   : 0);
    if (name == "strip") return stripped(*text, at(0), kLeft | kRight);
    if (name == "lstrip") return stripped(*text, at(0), kLeft);
    if (name == "rstrip") return stripped(*text, at(0), kRight);
    if (name == "startswith" || name == "endswith") {
      const auto fits = [&](const std::string& end) {
        return name == "startswith" ? text->starts_with(end) : text->ends_with(end);
      };
      if (at(0) && at(0)->list()) {
        for (const Value& one : *at(0)->list())
          if (fits(string_of(one, "a beginning or an end"))) return true;
        return false;
      }
      return fits(text_at(0));
    }
    if (name == "replace")
      return replaced(*text, text_at(0), text_at(1), at(2) ? whole_of(*at(2), "count") : std::int64_t{-1});
    if (name == "find") {
      const std::size_t found = text->find(text_at(0));
      return found == text->npos ? std::int64_t{-1} : Value(text->substr(0, found)).length();
    }
    if (name == "count") {
      const std::string& part = text_at(0);
      if (part.empty()) return value.length() + 1;
      std::int64_t times = 0;
      for (std::size_t i = 0; (i = text->find(part, i)) != text->npos; i += part.size()) ++times;
      return times;
    }
    if (name == "join") {
      const List parts = at(0) ? meter.elements(*at(0)) : List{};
      for (const Value& one : parts) meter.charge(one.weight());
      return joined(parts, *text);
    }
    if (name == "upper") return upper_case(*text);
    if (name == "lower") return lower_case(*text);
    if (name == "capitalize") return capitalized(*text);
    if (name == "title") return titled(*text, true);
    if (name == "splitlines") return split_lines(*text);
  }
  if (value.entries()) {
    if (name == "get") {
      refuse_more(2);
      const Value* const found = find_field(value, text_at(0), meter);
      return found ? *found : at(1) ? *at(1) : Value(Value::None{});
    }
    if (name == "items" || name == "keys" || name == "values") refuse_more(0);
    if (name == "items") return pairs_of(value, "items", meter);
    if (name == "keys") return meter.elements(value);
    if (name == "values") {
      List values;
      meter.charge(value.size().shallow);
      for (const auto& [key, one] : *value.entries()) values.push_back(one);
      return values;
    }
  }
  throw TemplateError(fmt::format("{} has no {} that can be called", value.kind(), quote_text(name)));
}

}  // namespace lockstep
