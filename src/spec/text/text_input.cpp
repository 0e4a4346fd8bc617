#include "spec/text/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kQuotedBytes = 60;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // row[j]: distance of a's first i letters to b's first j
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string read_text_file(const std::filesystem::path& file, std::size_t limit, ExitCode code) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UserError(code, file.string() + " is a folder", "name the file inside it");
  }
  // O_NONBLOCK: to open a pipe that nobody writes to would otherwise wait for ever. Of one that has a writer, all is
  // read.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw UserError(code, "cannot open " + file.string(), "check that it exists and may be read");
  ::fcntl(descriptor, F_SETFL, 0);
  std::string text(limit + 1, '\0');
  std::size_t have = 0;
  ssize_t got = 0;
  while (have < text.size() && (got = ::read(descriptor, text.data() + have, text.size() - have)) != 0) {
    if (got < 0 && errno != EINTR) break;
    have += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  struct stat status {};
  const bool pipe = ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
  ::close(descriptor);
  if (got < 0) throw UserError(code, "cannot read " + file.string(), "check the disk and the file's permissions");
  if (pipe && have == 0) throw UserError(code, file.string() + " is a pipe that nobody writes to", "name a file");
  text.resize(have);
  if (text.size() > limit) {
    throw UserError(code, fmt::format("{} is larger than {} bytes", file.string(), limit),
                    "check that it is the file you meant");
  }
  return text;
}

std::string quote_text(std::string_view text) {
  const bool cut = text.size() > kQuotedBytes;
  if (cut) {
    text = text.substr(0, kQuotedBytes);
    // Drop a UTF-8 character that the cut went through.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.remove_suffix(1);
  }
  std::string out = "'";
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return out + (cut ? "…'" : "'");
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  // A word much longer than any key is near to none; its head decides, at a bounded price.
  word = word.substr(0, kQuotedBytes);
  // A word that is longer than a key by its end alone, as sequence is than seq, is one letter away from it.
  const auto distance = [word](std::string_view one) {
    return one.size() > 2 && word.starts_with(one) ? std::min<std::size_t>(1, edit_distance(word, one))
                                                   : edit_distance(word, one);
  };
  const auto nearer = [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); };
  const auto best = std::min_element(known.begin(), known.end(), nearer);
  return best == known.end() ? std::string_view() : *best;
}

}  // namespace lockstep
