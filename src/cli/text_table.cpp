#include "cli/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

namespace {

// Characters, not bytes: every byte that does not continue a character.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - width_of(text), ' ');
  return left ? text + blanks : blanks + text;
}

}  // namespace

void TextTable::drop_empty_columns() {
  for (std::size_t column = heads.size(); column-- > 1;) {
    if (std::ranges::any_of(rows, [&](const auto& row) { return !row[column].empty(); })) continue;
    heads.erase(heads.begin() + static_cast<std::ptrdiff_t>(column));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

std::string TextTable::plain() const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < heads.size(); ++column) {
    widths.push_back(width_of(heads[column]));
    for (const auto& row : rows) widths.back() = std::max(widths.back(), width_of(row[column]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t column = 0; column < cells.size(); ++column)
      text += "  " + padded(cells[column], widths[column], column == 0);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string out = title + "\n" + line(heads);
  for (const auto& row : rows) out += line(row);
  return out;
}

std::string TextTable::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + cell + " |";
    return text + "\n";
  };
  std::vector<std::string> rule(heads.size(), "---:");
  rule.front() = "---";
  std::string out = title + "\n\n" + line(heads) + line(rule);
  for (const auto& row : rows) out += line(row);
  return out;
}

}  // namespace lockstep
