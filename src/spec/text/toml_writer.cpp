#include <cmath>

#include "spec/text/toml_fields.h"

namespace lockstep {

std::string toml_string(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void TomlWriter::table(std::string_view title) { text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", title); }
void TomlWriter::operator()(std::string_view key, std::int64_t value, Whole) { line(key, fmt::format("{}", value)); }
void TomlWriter::operator()(std::string_view key, std::uint64_t value) { line(key, fmt::format("{}", value)); }
void TomlWriter::operator()(std::string_view key, double value) { line(key, toml_number(value)); }
void TomlWriter::operator()(std::string_view key, bool value) { line(key, value ? "true" : "false"); }
void TomlWriter::operator()(std::string_view key, const std::string& value) { line(key, toml_string(value)); }
void TomlWriter::operator()(std::string_view key, const std::vector<std::string>& value) {
  std::string items;
  for (const std::string& item : value) items += (items.empty() ? "" : ", ") + toml_string(item);
  line(key, "[" + items + "]");
}
void TomlWriter::pair(std::string_view key, double first, double second, const Real&) {
  line(key, fmt::format("[{}, {}]", toml_number(first), toml_number(second)));
}
void TomlWriter::line(std::string_view key, std::string_view value) { text_ += fmt::format("{} = {}\n", key, value); }

}  // namespace lockstep
