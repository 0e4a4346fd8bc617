// What a terminal shows after a program has written to it: the few controls that Lockstep uses, and nothing else.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tests {

class Screen {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}

  void write(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const char c = bytes[at];
      if (c == '\033') {
        at = escape(bytes, at);
      } else if (c == '\r') {
        column_ = 0, ++at;
      } else if (c == '\n') {
        next_row(), ++at;
      } else {
        std::size_t end = at + 1;
        while (end < bytes.size() && (static_cast<unsigned char>(bytes[end]) & 0xC0) == 0x80) ++end;
        if (column_ == columns_) column_ = 0, next_row(), ++wrapped_;
        put(std::string(bytes.substr(at, end - at)));
        at = end;
      }
    }
  }

  // Rows from the top, those above the window included, without blanks at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> all;
    for (const std::vector<std::string>& cells : rows_) {
      std::string& text = all.emplace_back();
      for (const std::string& cell : cells) text += cell;
      text.erase(text.find_last_not_of(' ') + 1);
    }
    return all;
  }
  int wrapped() const { return wrapped_; }                 // rows that a text ran over the end of
  const std::string& unknown() const { return unknown_; }  // controls that this screen does not know
  int coloured() const { return coloured_; }               // changes of colour

 private:
  std::size_t escape(std::string_view bytes, std::size_t at) {
    std::size_t end = at + 2;
    while (end < bytes.size() && (bytes[end] < '@' || bytes[end] > '~')) ++end;
    const std::string control(bytes.substr(at + 1, end - at));
    if (control == "[J") {
      rows_.resize(row_ + 1), rows_[row_].resize(std::min(rows_[row_].size(), column_));
    } else if (control == "[A") {
      if (row_ > 0) --row_;
    } else if (control.ends_with('m')) {
      ++coloured_;
    } else {
      unknown_ += control + " ";
    }
    return end + 1;
  }
  void next_row() {
    if (++row_ == rows_.size()) rows_.emplace_back();
  }
  void put(const std::string& cell) {
    std::vector<std::string>& cells = rows_[row_];
    if (cells.size() <= column_) cells.resize(column_ + 1, " ");
    cells[column_++] = cell;
  }

  std::size_t columns_, row_ = 0, column_ = 0;
  int wrapped_ = 0, coloured_ = 0;
  std::string unknown_;
  std::vector<std::vector<std::string>> rows_{1};
};

}  // namespace lockstep::tests
