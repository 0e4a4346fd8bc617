#include "data/chat/template_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/chat/template_text.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

using List = TemplateValue::List;
using Value = TemplateValue;

std::string together(const std::string& a, const std::string& b) {
  if (a.size() + b.size() > kMostRenderedBytes) throw TemplateError("a text becomes too long");
  return a + b;
}
std::string repeated(const Value& a, const Value& b) {
  const bool first = a.get<std::string>() != nullptr;
  const std::string& text = *(first ? a : b).get<std::string>();
  const std::int64_t times = whole_of(first ? b : a, "how often a text is repeated");
  if (times <= 0 || text.empty()) return "";
  if (times > static_cast<std::int64_t>(kMostRenderedBytes / text.size()))
    throw TemplateError("a text becomes too long");
  std::string out;
  for (std::int64_t i = 0; i < times; ++i) out += text;
  return out;
}

Value calculated(const std::string& sign, const Value& a, const Value& b) {
  if (!a.get<double>() && !b.get<double>() && sign != "/" && sign != "**") {
    const std::int64_t x = whole_of(a, ""), y = whole_of(b, "");
    std::int64_t result = 0;
    if (sign == "+"   ? __builtin_add_overflow(x, y, &result)
        : sign == "-" ? __builtin_sub_overflow(x, y, &result)
        : sign == "*" ? __builtin_mul_overflow(x, y, &result)
                      : x == INT64_MIN && y == -1)
      throw TemplateError("a number is too large");
    if (sign != "//" && sign != "%") return result;
    if (y == 0) throw TemplateError("a division by zero");
    const std::int64_t rest = x % y != 0 && (x < 0) != (y < 0) ? x % y + y : x % y;  // of y's sign, as in Python
    return sign == "%" ? rest : (x - rest) / y;
  }
  const double x = number_of(a), y = number_of(b);
  if (sign == "+") return x + y;
  if (sign == "-") return x - y;
  if (sign == "*") return x * y;
  if (sign == "**") {
    const double power = std::pow(x, y);
    if (a.get<double>() || b.get<double>() || y < 0) return power;
    if (!(std::abs(power) <= 0x1p53)) throw TemplateError("a number is too large");
    return static_cast<std::int64_t>(power);
  }
  if (y == 0) throw TemplateError("a division by zero");
  if (sign == "/") return x / y;
  if (sign == "//") return std::floor(x / y);
  return x - y * std::floor(x / y);
}

}  // namespace

Value binary_operation(const std::string& sign, const Value& a, const Value& b, TemplateMeter& meter) {
  if (sign == "==") return meter.equal(a, b);
  if (sign == "!=") return !meter.equal(a, b);
  if (sign == "in") return meter.contains(b, a);
  if (sign == "not in") return !meter.contains(b, a);
  if (sign == "<") return less(a, b);
  if (sign == ">") return less(b, a);
  if (sign == "<=") return !less(b, a);
  if (sign == ">=") return !less(a, b);
  const auto made = [&meter](Value value) {
    meter.charge_made(value);
    return value;
  };
  if (sign == "~") return made(together(meter.text(a), meter.text(b)));
  for (const Value* side : {&a, &b})
    if (side->undefined())
      throw TemplateError(fmt::format("{} is undefined", quote_text(side->get<Value::Undefined>()->name)));
  if (sign == "+") {
    if (const auto* x = a.get<std::string>(), *y = b.get<std::string>(); x && y) return made(together(*x, *y));
    if (const auto* x = a.list(), *y = b.list(); x && y) {
      if (x->size() + y->size() > kMostElements) throw TemplateError("a list becomes too long");
      meter.charge(a.size().shallow + b.size().shallow);  // before they are copied
      List all = *x;
      all.insert(all.end(), y->begin(), y->end());
      return all;
    }
  }
  if (sign == "*" && (a.get<std::string>() || b.get<std::string>())) return made(repeated(a, b));
  if (!a.number() || !b.number())
    throw TemplateError(fmt::format("'{}' of {} and {}{}", sign, a.kind(), b.kind(),
                                    sign == "+" ? " (join what is no text by '~')" : ""));
  return calculated(sign, a, b);
}

Value signed_number(const Value& a, bool negative) {
  if (a.get<double>()) return negative ? -number_of(a) : number_of(a);
  const std::int64_t whole = whole_of(a, "what a sign is before");
  if (negative && whole == INT64_MIN) throw TemplateError("a number is too large");
  return negative ? -whole : whole;
}

TemplateValue slice_of(const TemplateValue& value, const TemplateValue& begin, const TemplateValue& end,
                       const TemplateValue& step, TemplateMeter& meter) {
  if (!value.list() && !value.get<std::string>()) throw TemplateError(fmt::format("a slice of {}", value.kind()));
  const auto given = [](const Value& v) { return !v.undefined() && !v.none(); };
  const auto* text = value.get<std::string>();
  // Of text a slice without steps needs no list of its characters.
  const bool plain = text && !given(step);
  if (text) meter.charge(text->size());
  const List elements = plain ? List{} : meter.elements(value);
  const std::int64_t size = plain ? value.length() : std::ssize(elements);
  const std::int64_t by = given(step) ? whole_of(step, "a step") : 1;
  if (by == 0) throw TemplateError("a slice with steps of zero");
  const auto place = [&](const Value& v, std::int64_t otherwise) {
    if (!given(v)) return otherwise;
    std::int64_t at = std::clamp<std::int64_t>(whole_of(v, "a place"), -size - 1, size);
    if (at < 0) at += size;
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t from = place(begin, by > 0 ? 0 : size - 1), to = place(end, by > 0 ? size : -1);
  if (plain) {
    const auto byte = [&](std::int64_t character) {
      std::size_t at = 0;
      for (; character > 0; --character) at += utf8_bytes((*text)[at]);
      return at;
    };
    return from < to ? text->substr(byte(from), byte(to) - byte(from)) : std::string();
  }
  List out;
  const std::int64_t stride = std::clamp<std::int64_t>(by, -size - 1, size + 1);  // larger ones take one element too
  for (std::int64_t i = from; stride > 0 ? i < to : i > to; i += stride)
    out.push_back(elements[static_cast<std::size_t>(i)]);
  if (value.get<std::string>()) return joined(out, "");
  return out;
}

}  // namespace lockstep
