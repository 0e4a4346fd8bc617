#include "support/flipped_memory.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "support/stopped_process.h"

namespace lockstep::tests {

int flip_in_process(pid_t process, std::span<const std::byte> content) {
  const StoppedProcess stopped(process);  // else a place may be given to something else between the look and the flip
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  if (!maps) return -1;
  constexpr std::size_t kAtOnce = 1 << 22;
  const std::boyer_moore_horspool_searcher search(content.begin(), content.end());
  std::vector<std::byte> bytes(kAtOnce);
  int flipped = 0;
  bool any = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-'), space = line.find(' ');
    if (line.compare(space + 1, 2, "rw") != 0) continue;
    std::size_t at = std::stoull(line.substr(0, dash), nullptr, 16);
    const std::size_t end = std::stoull(line.substr(dash + 1, space - dash - 1), nullptr, 16);
    while (at + content.size() <= end) {
      const std::size_t count = std::min(kAtOnce, end - at);
      iovec here{bytes.data(), count}, there{reinterpret_cast<void*>(at), count};
      const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
      if (got < static_cast<ssize_t>(content.size())) break;  // of a driver, or gone
      any = true;
      for (auto from = bytes.begin();;) {
        const auto [begin, stop] = search(from, bytes.begin() + got);
        if (begin == bytes.begin() + got) break;
        const auto middle = begin + static_cast<std::ptrdiff_t>(content.size() / 2);
        std::byte changed = *middle ^ std::byte{4};
        iovec mine{&changed, 1}, its{reinterpret_cast<void*>(at + static_cast<std::size_t>(middle - bytes.begin())), 1};
        if (::process_vm_writev(process, &mine, 1, &its, 1, 0) == 1) ++flipped;
        from = stop;
      }
      if (count < kAtOnce) break;
      at += count - content.size() + 1;
    }
  }
  return any ? flipped : -1;
}

}  // namespace lockstep::tests
