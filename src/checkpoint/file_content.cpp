#include "checkpoint/file_content.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "checkpoint/all_or_none.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPiece = 64 << 20;  // that is in memory at a time

// Which files they are. The time of the last change cannot be set by anyone, so copies never look the same; a file that
// several hosts see does.
std::string identity_of(std::span<const fs::path> files) {
  std::string text;
  for (const fs::path& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0)
      throw UserError(ExitCode::bad_input_file, fmt::format("{} cannot be read", file.string()), "make it readable");
    text += fmt::format("{} {} {}.{} {}.{}\n", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                        status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  return text;
}

std::string sum_of(std::span<const fs::path> files) {
  Checksum sum;
  for (const fs::path& path : files) {
    const MappedFile file(path);
    const std::int64_t size = std::ssize(file.bytes());
    sum.update(std::as_bytes(std::span(&size, 1)));
    for (std::int64_t at = 0; at < size; at += kPiece) {
      const std::int64_t end = std::min(size, at + kPiece);
      sum.update(file.bytes().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)));
      file.forget(at, end);
    }
  }
  return fmt::format("{:016x}", sum.value());
}

}  // namespace

std::string content_of_files(std::span<const fs::path> files, Communicator& ranks) {
  const std::vector<std::string> sets = all_or_none(&ranks, [&] { return identity_of(files); });
  if (std::ranges::all_of(sets, [&](const std::string& set) { return set == sets.front(); })) return "the same files";
  const auto here = static_cast<std::size_t>(ranks.rank());
  const auto reader = static_cast<std::size_t>(std::ranges::find(sets, sets[here]) - sets.begin());
  return all_or_none(&ranks, [&] { return reader == here ? sum_of(files) : ""; })[reader];
}

}  // namespace lockstep
