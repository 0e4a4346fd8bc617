#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "data/dataset.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name, problem), "copy or make the file again");
}

// Widens; returns the position of the first id that is not in the vocabulary, or -1.
template <class Stored>
std::int64_t widen(const std::byte* from, std::int64_t vocabulary, std::span<std::int32_t> to) {
  bool fine = true;
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);  // borrowed bytes may have any alignment
    to[i] = static_cast<std::int32_t>(id);
    fine &= id < static_cast<std::uint64_t>(vocabulary);
  }
  if (fine) return -1;
  const auto bad = [vocabulary](std::int32_t id) { return id < 0 || id >= vocabulary; };
  return std::find_if(to.begin(), to.end(), bad) - to.begin();
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path)
    : map_(std::make_unique<MappedFile>(path)),
      bytes_(map_->bytes()),
      name_(path.string()),
      header_(parse_token_file_header(bytes_, name_)) {
  if (documents() > 0) document(0);
}

TokenFile::TokenFile(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)), header_(parse_token_file_header(bytes_, name_)) {
  if (documents() > 0) document(0);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> to) const {
  const auto count = static_cast<std::int64_t>(to.size());
  LOCKSTEP_CHECK(first >= 0 && first <= tokens() && count <= tokens() - first, "{} tokens from {} on, of {}", count,
                 first, tokens());
  const std::byte* from = bytes_.data() + header_.tokens_at() + first * header_.width;
  const std::int64_t bad = header_.width == 1   ? widen<std::uint8_t>(from, vocabulary(), to)
                           : header_.width == 2 ? widen<std::uint16_t>(from, vocabulary(), to)
                                                : widen<std::uint32_t>(from, vocabulary(), to);
  if (bad >= 0) {
    refuse(name_, fmt::format("token {} has id {}, but the vocabulary is {}", first + bad,
                              static_cast<std::uint32_t>(to[static_cast<std::size_t>(bad)]), vocabulary()));
  }
}

bool TokenFile::is_target(std::int64_t token) const {
  const auto byte = bytes_[static_cast<std::size_t>(header_.marks_at() + token / 8)];
  return (std::to_integer<unsigned>(byte) >> (token % 8) & 1) != 0;
}

void TokenFile::read_targets(std::int64_t first, std::span<std::int32_t> to) const {
  read(first, to);
  if (!header_.marked()) return;
  for (std::size_t i = 0; i < to.size(); ++i)
    if (!is_target(first + static_cast<std::int64_t>(i))) to[i] = kNoTarget;
}

std::int64_t TokenFile::count_targets(std::int64_t first, std::int64_t count) const {
  LOCKSTEP_CHECK(first >= 0 && first <= tokens() && count >= 0 && count <= tokens() - first,
                 "{} tokens from {} on, of {}", count, first, tokens());
  if (!header_.marked()) return count;
  std::int64_t marked = 0;
  for (std::int64_t i = 0; i < count; ++i) marked += is_target(first + i) ? 1 : 0;
  return marked;
}

std::uint64_t TokenFile::fingerprint() const { return checksum(encode(header_)); }

std::uint64_t TokenFile::start_of(std::int64_t document) const {
  if (document == documents()) return static_cast<std::uint64_t>(tokens());
  std::uint64_t start;
  std::memcpy(&start, bytes_.data() + header_.index_at() + document * 8, sizeof start);
  return start;
}

std::pair<std::int64_t, std::int64_t> TokenFile::document(std::int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index < documents(), "document {} of {}", index, documents());
  const std::uint64_t first = start_of(index), end = start_of(index + 1);
  if (index == 0 && first != 0) refuse(name_, fmt::format("document 0 begins at token {}, not 0", first));
  if (first >= end || end > static_cast<std::uint64_t>(tokens())) {
    refuse(name_, fmt::format("document {} is tokens {} to {} of {}", index, first, end, tokens()));
  }
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)};
}

void TokenFile::verify() const {
  if (checksum(bytes_.subspan(static_cast<std::size_t>(kTokenFileHeaderBytes))) != header_.payload_checksum) {
    refuse(name_, "is damaged: the checksum of its tokens is wrong");
  }
  for (std::int64_t i = 0; i < documents(); ++i) document(i);
  std::vector<std::int32_t> piece(1 << 16);
  for (std::int64_t at = 0; at < tokens(); at += static_cast<std::int64_t>(piece.size())) {
    const auto left = static_cast<std::size_t>(tokens() - at);
    read(at, std::span(piece).first(std::min(piece.size(), left)));
  }
  if (const std::int64_t marked = count_targets(0, tokens()); header_.marked() && marked != header_.targets)
    refuse(name_, fmt::format("marks {} targets, and its header says {}", marked, header_.targets));
}

}  // namespace lockstep
