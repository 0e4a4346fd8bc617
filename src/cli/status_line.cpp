#include "cli/status_line.h"

#include <unistd.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "cli/terminal.h"

namespace lockstep {

namespace {
constexpr std::string_view kErase = "\r\033[J";
std::atomic<bool> line_stands = false;  // all that a signal handler can reach
static_assert(std::atomic<bool>::is_always_lock_free);
}  // namespace

void erase_status_line() noexcept {
  if (line_stands.exchange(false) && ::write(STDOUT_FILENO, kErase.data(), kErase.size()) < 0) return;
}

StatusLine::~StatusLine() { erase_status_line(); }

std::string StatusLine::drawn() const {
  // The last column stays free: a terminal may wrap when it is filled.
  const int columns = terminal_columns(STDOUT_FILENO) - 1;
  return "\r\n" + whole_fields(line_, columns) + "\r\033[A";
}

std::string StatusLine::draw(std::string line) {
  if (!shown_) return "";
  line_ = std::move(line);
  const auto now = std::chrono::steady_clock::now();
  if (line_stands && drawn_at_ && now < *drawn_at_ + kInterval) return "";
  drawn_at_ = now;
  line_stands = true;
  return std::string(kErase) + drawn();
}

std::string StatusLine::print(const std::string& lines) const {
  return line_stands ? std::string(kErase) + lines + drawn() : lines;
}

std::string StatusLine::take_away() { return line_stands.exchange(false) ? std::string(kErase) : ""; }

}  // namespace lockstep
