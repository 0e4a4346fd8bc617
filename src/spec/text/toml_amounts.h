// Numbers with units in TOML tables: `memory = "80GiB"`, `bandwidth = 25e9`. Visitors of a list of keys, as TomlTable
// and TomlWriter are, which take an Amount beside what those take.
#pragma once
#include <fmt/format.h>

#include <cmath>

#include "spec/text/quantity.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

// What a number may be. Zero, where it may be that and is the default, says that there is none: it is not written.
struct Amount {
  QuantityKind kind = QuantityKind::plain;
  double least = 0, most = 0;
  bool above_least = false;
  bool or_none = false;

  bool takes(double value) const {  // never a NaN
    return (or_none && value == 0) || ((above_least ? value > least : value >= least) && value <= most);
  }
  std::string text() const {
    return fmt::format("{}, {} {} and at most {}{}", quantity_example(kind), above_least ? "above" : "at least",
                       quantity_text(least, kind), quantity_text(most, kind), or_none ? ", or 0 for none" : "");
  }
};

class AmountReader {
 public:
  explicit AmountReader(const TomlTable& table) : table_(table) {}

  void operator()(std::string_view key, auto& field) const { table_(key, field); }
  void operator()(std::string_view key, std::int64_t& field, Whole range) const { table_(key, field, range); }
  void operator()(std::string_view key, double& field, const Amount& amount) const {
    if (table_.has(key)) field = number(key, amount);
  }
  void operator()(std::string_view key, std::int64_t& field, const Amount& amount) const {
    if (table_.has(key)) field = std::llround(number(key, amount));  // 3.4TiB are no whole bytes
  }

 private:
  double number(std::string_view key, const Amount& amount) const {
    double value = std::nan("");
    if (const std::string shown = table_.shown(key); shown.starts_with("'")) {
      std::string text;
      table_(key, text);
      value = parse_quantity(text, amount.kind).value_or(value);
    } else if (shown != "true" && shown != "false" && !shown.starts_with("a")) {
      table_(key, value);
    }
    if (!amount.takes(value)) refuse(key, amount.text());
    return value;
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const {
    table_.refuse(key, fmt::format("{} = {} is not allowed", key, table_.shown(key)), "it must be " + expected);
  }

  const TomlTable& table_;
};

class AmountWriter {
 public:
  explicit AmountWriter(TomlWriter& writer) : writer_(writer) {}

  void operator()(std::string_view key, const auto& field) const { writer_(key, field); }
  void operator()(std::string_view key, std::int64_t field, Whole range) const {
    if (field != 0) writer_(key, field, range);
  }
  void operator()(std::string_view key, double field, const Amount& amount) const {
    if (field == 0 && amount.or_none) return;
    const std::string text = quantity_text(field, amount.kind);
    if (text.back() >= '0' && text.back() <= '9')  // no unit
      writer_(key, field);
    else
      writer_(key, text);
  }
  void operator()(std::string_view key, std::int64_t field, const Amount& amount) const {
    (*this)(key, static_cast<double>(field), amount);
  }

 private:
  TomlWriter& writer_;
};

}  // namespace lockstep
