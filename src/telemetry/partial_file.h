// A file that appears at its path when it is whole, and not before.
//
// The bytes go to PATH.partial, through a buffer, and the file is then renamed. One that is destroyed before is
// removed. Nothing is synced: a reader sees a whole file or none, but after a power failure it may be an older one.
// Used by one thread. Failure: EnvironmentError naming the path and what the system said.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

namespace lockstep {

class PartialFile {
 public:
  explicit PartialFile(std::filesystem::path path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(std::string_view bytes) {
    buffer_.append(bytes.data(), bytes.data() + bytes.size());
    if (buffer_.size() >= kBuffer) flush();
  }
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... arguments) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(arguments)...);
    if (buffer_.size() >= kBuffer) flush();
  }

  // Both rename; nothing is written afterwards.
  void finish();
  int finish_open();  // the file's descriptor, which appends; the caller closes it

 private:
  static constexpr std::size_t kBuffer = 1 << 18;

  void flush();
  void rename();
  [[noreturn]] void fail(const char* call) const;

  std::filesystem::path path_, beside_;
  fmt::memory_buffer buffer_;
  int descriptor_ = -1;
  bool in_place_ = false;
};

}  // namespace lockstep
