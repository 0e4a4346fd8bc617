#include "data/chat/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/tokenizer/utf8.h"

namespace lockstep {

namespace {

std::string digits_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Python's repr(): the shortest digits that read back equal, with an exponent below 1e-4 and from 1e16 on.
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);
  char room[64];
  const auto end =
      std::to_chars(room, room + sizeof room, value, plain ? std::chars_format::fixed : std::chars_format::scientific)
          .ptr;
  std::string text(room, end);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

// As Python writes a string inside a list: in single quotes, unless it holds those and no double ones.
std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\')
      out += fmt::format("\\{}", c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      out += c;
  }
  return out + quote;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    if (const auto at = kNamed.find(c); at != kNamed.npos)
      out += fmt::format("\\{}", kLetters[at]);
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      out += c;
  }
  return out + '"';
}

void require_printable(const std::string& out) {
  if (out.size() > kMostRenderedBytes) throw TemplateError("a text becomes too long");
}

void append_json(std::string& out, const TemplateValue& value, std::int64_t indent, std::int64_t depth) {
  require_printable(out);
  const auto line = [&](std::int64_t at) {
    if (indent > 0) out += "\n" + std::string(static_cast<std::size_t>(indent * at), ' ');
  };
  const auto each = [&](char open, char close, std::size_t size, auto&& append) {
    out += open;
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0) out += indent > 0 ? "," : ", ";
      line(depth + 1);
      append(i);
    }
    if (size > 0) line(depth);
    out += close;
  };
  if (const auto* list = value.list()) {
    each('[', ']', list->size(), [&](std::size_t i) { append_json(out, (*list)[i], indent, depth + 1); });
  } else if (const auto* entries = value.entries()) {
    each('{', '}', entries->size(), [&](std::size_t i) {
      out += json_string((*entries)[i].first) + ": ";
      append_json(out, (*entries)[i].second, indent, depth + 1);
    });
  } else if (const auto* text = value.get<std::string>()) {
    out += json_string(*text);
  } else if (value.none()) {
    out += "null";
  } else if (const auto* flag = value.get<bool>()) {
    out += *flag ? "true" : "false";
  } else if (value.number()) {
    out += value.text();
  } else {
    throw TemplateError(fmt::format("{} cannot be written as JSON", value.kind()));
  }
}

// Numbers as Python orders them: a bool is 0 or 1, whole numbers are compared exactly.
int order(const TemplateValue& a, const TemplateValue& b) {
  const auto whole = [](const TemplateValue& v) -> std::optional<std::int64_t> {
    if (const auto* flag = v.get<bool>()) return *flag ? 1 : 0;
    if (const auto* number = v.get<std::int64_t>()) return *number;
    return std::nullopt;
  };
  const auto x = whole(a), y = whole(b);
  if (x && y) return *x < *y ? -1 : *x > *y;
  const double u = number_of(a), v = number_of(b);
  return u < v ? -1 : u > v;
}

void append_repr(std::string& out, const TemplateValue& value) {
  require_printable(out);
  const auto between = [&out, begin = out.size() + 1] {
    if (out.size() > begin) out += ", ";
  };
  if (const auto* text = value.get<std::string>()) {
    out += quoted(*text);
  } else if (value.undefined()) {
    out += "Undefined";
  } else if (value.none()) {
    out += "None";
  } else if (const auto* flag = value.get<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const auto* whole = value.get<std::int64_t>()) {
    out += fmt::format("{}", *whole);
  } else if (const auto* number = value.get<double>()) {
    out += digits_of(*number);
  } else if (const auto* list = value.list()) {
    out += '[';
    for (const TemplateValue& one : *list) between(), append_repr(out, one);
    out += ']';
  } else if (const auto* entries = value.entries()) {
    out += '{';
    for (const auto& [key, one] : *entries) {
      between();
      out += quoted(key) + ": ";
      append_repr(out, one);
    }
    out += '}';
  } else {
    throw TemplateError(fmt::format("{} cannot be printed", value.kind()));
  }
}

// About what an element takes, as a text of its own with what shares it.
constexpr std::size_t kElementBytes = 96;

// Counts one more value, with its key, in what holds it.
void count_in(TemplateValue::Size& size, const TemplateValue& value, std::size_t key) {
  constexpr std::size_t kFull = SIZE_MAX / 4;  // beyond any limit; so that sums of shared values do not overflow
  const TemplateValue::Size one = value.size();
  size.shallow = std::min(kFull, size.shallow + kElementBytes + key);
  size.weight = std::min(kFull, size.weight + kElementBytes + key + one.weight);
  size.depth = std::max(size.depth, one.depth + 1);
  if (size.depth > kDeepestTemplateValue)
    throw TemplateError(fmt::format("lists within each other more than {} deep", kDeepestTemplateValue));
}

}  // namespace

TemplateValue::TemplateValue(List list) {
  Size size;
  for (const TemplateValue& one : list) count_in(size, one, 0);
  value_ = std::make_shared<const SizedList>(SizedList{std::move(list), size});
}
TemplateValue::TemplateValue(Entries entries) {
  Size size;
  for (const auto& [key, one] : entries) count_in(size, one, key.size());
  value_ = std::make_shared<const SizedEntries>(SizedEntries{std::move(entries), size});
}

TemplateValue::Size TemplateValue::size() const {
  if (const auto* shared = get<std::shared_ptr<const SizedList>>()) return (*shared)->size;
  if (const auto* shared = get<std::shared_ptr<const SizedEntries>>()) return (*shared)->size;
  const auto* text = get<std::string>();
  const std::size_t bytes = text ? text->size() : 0;
  return {.weight = bytes, .shallow = bytes, .depth = 0};
}

TemplateValue TemplateValue::of(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::null:
      return None{};
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
      return json.get<std::int64_t>();
    case nlohmann::json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) return json.get<double>();
      return json.get<std::int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return json.get<std::string>();
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& one : json) list.push_back(of(one));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Entries entries;
      for (const auto& [key, one] : json.items()) entries.emplace_back(key, of(one));
      return entries;
    }
    default:
      throw TemplateError("a value that is no JSON");
  }
}

const TemplateValue::List* TemplateValue::list() const {
  const auto* shared = get<std::shared_ptr<const SizedList>>();
  return shared ? &(*shared)->values : nullptr;
}
const TemplateValue::Entries* TemplateValue::entries() const {
  const auto* shared = get<std::shared_ptr<const SizedEntries>>();
  return shared ? &(*shared)->values : nullptr;
}
TemplateNamespace* TemplateValue::names() const {
  TemplateNamespace* const* names = get<TemplateNamespace*>();
  return names ? *names : nullptr;
}
const TemplateMacro* TemplateValue::macro() const {
  const TemplateMacro* const* macro = get<const TemplateMacro*>();
  return macro ? *macro : nullptr;
}

const char* TemplateValue::kind() const {
  constexpr const char* kKinds[] = {
      "something undefined", "none",        "a boolean", "a number", "a number", "a string", "a list",
      "a dictionary",        "a namespace", "a macro"};
  return kKinds[value_.index()];
}

bool TemplateValue::truth() const {
  if (const auto* flag = get<bool>()) return *flag;
  if (const auto* whole = get<std::int64_t>()) return *whole != 0;
  if (const auto* number = get<double>()) return *number != 0;
  if (const auto* text = get<std::string>()) return !text->empty();
  if (const auto* all = list()) return !all->empty();
  if (const auto* all = entries()) return !all->empty();
  return !undefined() && !none();
}

std::string TemplateValue::text() const {
  if (const auto* text = get<std::string>()) return *text;
  if (undefined()) return "";
  return repr();
}

std::string TemplateValue::repr() const {
  std::string out;
  append_repr(out, *this);
  return out;
}

std::string TemplateValue::json(std::int64_t indent) const {
  std::string out;
  append_json(out, *this, indent, 0);
  return out;
}

const TemplateValue* TemplateValue::find(std::string_view key) const {
  if (const auto* all = entries())
    for (const auto& [name, value] : *all)
      if (name == key) return &value;
  if (TemplateNamespace* const all = names())
    if (const auto found = all->find(key); found != all->end()) return &found->second;
  return nullptr;
}

TemplateValue::List TemplateValue::elements() const {
  if (const auto* all = list()) return *all;
  List elements;
  const auto add = [&](std::string one) {
    if (elements.size() == kMostElements)
      throw TemplateError(fmt::format("{} of more than {} elements", kind(), kMostElements));
    elements.emplace_back(std::move(one));
  };
  if (const auto* all = entries()) {
    for (const auto& [key, value] : *all) add(key);
  } else if (const auto* text = get<std::string>()) {
    for (std::size_t at = 0, bytes; at < text->size(); at += bytes) {
      bytes = utf8_bytes((*text)[at]);
      add(text->substr(at, bytes));
    }
  } else if (!undefined()) {
    throw TemplateError(fmt::format("{} has no elements", kind()));
  }
  return elements;
}

std::int64_t TemplateValue::length() const {
  if (const auto* all = list()) return std::ssize(*all);
  if (const auto* all = entries()) return std::ssize(*all);
  if (const auto* text = get<std::string>()) {
    std::int64_t characters = 0;
    for (std::size_t at = 0; at < text->size(); at += utf8_bytes((*text)[at])) ++characters;
    return characters;
  }
  if (undefined()) return 0;
  throw TemplateError(fmt::format("{} has no length", kind()));
}

bool equal(const TemplateValue& a, const TemplateValue& b) {
  if (a.number() && b.number()) return order(a, b) == 0;
  if (const auto* x = a.get<std::string>(), *y = b.get<std::string>(); x && y) return *x == *y;
  if (const auto* x = a.list(), *y = b.list(); x && y) {
    if (x->size() != y->size()) return false;
    for (std::size_t i = 0; i < x->size(); ++i)
      if (!equal((*x)[i], (*y)[i])) return false;
    return true;
  }
  if (const auto* x = a.entries(), *y = b.entries(); x && y) {
    if (x->size() != y->size()) return false;
    for (const auto& [key, value] : *x)
      if (const TemplateValue* other = b.find(key); !other || !equal(value, *other)) return false;
    return true;
  }
  if (a.names() || b.names()) return a.names() == b.names();
  if (a.macro() || b.macro()) return a.macro() == b.macro();
  return (a.none() && b.none()) || (a.undefined() && b.undefined());
}

bool less(const TemplateValue& a, const TemplateValue& b) {
  if (a.number() && b.number()) return order(a, b) < 0;
  if (const auto* x = a.get<std::string>(), *y = b.get<std::string>(); x && y)
    return *x < *y;  // UTF-8 keeps the order of characters
  throw TemplateError(fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

bool contains(const TemplateValue& container, const TemplateValue& value) {
  if (const auto* text = container.get<std::string>())
    return text->find(string_of(value, "what is looked for in a string")) != text->npos;
  if (container.entries() || container.names()) {
    const auto* key = value.get<std::string>();
    return key && container.find(*key);
  }
  const auto is = [&](const TemplateValue& one) { return equal(one, value); };
  if (const auto* list = container.list()) return std::any_of(list->begin(), list->end(), is);
  const TemplateValue::List elements = container.elements();
  return std::any_of(elements.begin(), elements.end(), is);
}

double number_of(const TemplateValue& value) {
  if (const auto* flag = value.get<bool>()) return *flag ? 1 : 0;
  if (const auto* whole = value.get<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* number = value.get<double>()) return *number;
  throw TemplateError(fmt::format("{} is no number", value.kind()));
}

std::int64_t whole_of(const TemplateValue& value, std::string_view what) {
  if (const auto* flag = value.get<bool>()) return *flag ? 1 : 0;
  if (const auto* whole = value.get<std::int64_t>()) return *whole;
  throw TemplateError(fmt::format("{} is {}, not a whole number", what, value.kind()));
}

const std::string& string_of(const TemplateValue& value, std::string_view what) {
  if (const auto* text = value.get<std::string>()) return *text;
  throw TemplateError(fmt::format("{} is {}, not a string", what, value.kind()));
}

}  // namespace lockstep
