// The line at the bottom of a terminal that a command rewrites while it works.
//
// The cursor rests at the beginning of an empty row and the line is drawn in the row below it. So a line that other
// code writes to the terminal meanwhile, through standard error or from another process, fills the empty row and
// nothing collides; the line's next drawing erases its old place and begins below. Erasing reaches to the end of the
// screen: what a terminal that was made narrower has wrapped goes too. Of a text of several rows, the rows from the
// second on may keep what they did not cover of the line until it is drawn again.
//
// The functions return what is to be written; the caller writes it to standard output in one go. Used by one thread.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

class StatusLine {
 public:
  static constexpr std::chrono::milliseconds kInterval{50};  // a person reads no faster

  explicit StatusLine(bool shown) : shown_(shown) {}
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool shown() const { return shown_; }
  // The line is this from now on: as many of its fields, which two blanks separate, as the terminal is wide for, which
  // is asked each time. "" soon after another drawing.
  std::string draw(std::string line);
  // Whole lines that stay, above it.
  std::string print(const std::string& lines) const;
  // The line is gone until it is drawn again.
  std::string take_away();

 private:
  std::string drawn() const;

  bool shown_;
  std::string line_;
  std::optional<std::chrono::steady_clock::time_point> drawn_at_;
};

// For a signal handler that ends the process: erases the line that stands on standard output, if one does.
void erase_status_line() noexcept;

}  // namespace lockstep
