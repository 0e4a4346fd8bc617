// Ends a text where one of some strings begins, as the text comes in pieces.
//
// What may still become a stop string is held back until the next piece or the end; what comes from the first stop
// string on is never given. Of several that end in the same piece, the one that begins first counts.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}  // none of them empty

  std::string push(std::string_view piece);  // what can be given of the text
  std::string finish();                      // what was held back, unless a stop string was found
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace lockstep
