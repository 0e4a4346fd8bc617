// Bytes drawn: a bar per layout, made of its tags, all on one scale.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct MemoryBar {
  std::string label;
  std::vector<std::pair<std::string, std::int64_t>> parts;  // tag and bytes; bars have the same tags, in one order
  std::int64_t total() const;
};
struct MemoryPictureOptions {
  std::string title = {}, subtitle = {};
  std::int64_t limit = 0;        // bytes of a device, drawn as a line; 0: none
  std::string limit_label = {};  // "80 GiB"
};
std::string memory_picture(std::span<const MemoryBar> bars, const MemoryPictureOptions& options);

// "812 MiB", "1.2 GiB", to three digits.
std::string short_bytes(std::int64_t bytes);

}  // namespace lockstep
