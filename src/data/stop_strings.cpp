#include "data/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lockstep {

std::string StopStrings::push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  std::size_t stop = held_.npos;
  for (const std::string& one : stops_) stop = std::min(stop, held_.find(one));
  if (stop != held_.npos) {
    found_ = true;
    return held_.substr(0, stop);
  }
  // From here on the text may be the beginning of a stop string.
  std::size_t from = held_.size();
  for (const std::string& one : stops_)
    for (std::size_t size = std::min(one.size() - 1, held_.size()); size > held_.size() - from; --size)
      if (std::string_view(held_).substr(held_.size() - size) == std::string_view(one).substr(0, size))
        from = held_.size() - size;
  std::string given = held_.substr(0, from);
  held_.erase(0, from);
  return given;
}

std::string StopStrings::finish() { return found_ ? "" : std::exchange(held_, {}); }

}  // namespace lockstep
