#include "data/token_file_header.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read in place");

constexpr std::size_t kMagicBytes = kTokenFileMagic.size();
constexpr const char* kMagic = kTokenFileMagic.data();
constexpr std::int64_t kMostIds = std::int64_t{1} << 31;  // ids are 32-bit, and never negative
constexpr std::size_t kVersionAt = 8, kWidthAt = 12, kVocabularyAt = 16, kTokensAt = 24, kDocumentsAt = 32,
                      kPayloadChecksumAt = 40, kTargetsAt = 48, kHeaderChecksumAt = 56;

template <class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put(std::span<std::byte> bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

std::int64_t TokenFileHeader::index_at() const { return round_up(tokens_at() + tokens * width, kTokenFileAlignment); }
std::int64_t TokenFileHeader::marks_at() const { return round_up(index_at() + documents * 8, kTokenFileAlignment); }
std::int64_t TokenFileHeader::file_bytes() const {
  return marked() ? marks_at() + (tokens + 7) / 8 : index_at() + documents * 8;
}

std::int64_t token_width(std::int64_t vocabulary) {
  LOCKSTEP_CHECK(vocabulary >= 1 && vocabulary <= kMostIds, "a vocabulary of {}", vocabulary);
  return vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
}

std::array<std::byte, kTokenFileHeaderBytes> encode(const TokenFileHeader& header) {
  std::array<std::byte, kTokenFileHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kMagic, kMagicBytes);
  put(bytes, kVersionAt, header.marked() ? kMarkedTokenVersion : kTokenFileVersion);
  put(bytes, kWidthAt, static_cast<std::uint32_t>(header.width));
  put(bytes, kVocabularyAt, static_cast<std::uint64_t>(header.vocabulary));
  put(bytes, kTokensAt, static_cast<std::uint64_t>(header.tokens));
  put(bytes, kDocumentsAt, static_cast<std::uint64_t>(header.documents));
  put(bytes, kPayloadChecksumAt, header.payload_checksum);
  put(bytes, kTargetsAt, static_cast<std::uint64_t>(header.targets));
  put(bytes, kHeaderChecksumAt, checksum(std::span(bytes).first(kHeaderChecksumAt)));
  return bytes;
}

TokenFileHeader parse_token_file_header(std::span<const std::byte> file, const std::string& name) {
  const auto refuse = [&name](const std::string& problem, const char* remedy = "make the file again") {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name, problem), remedy);
  };
  const auto size = static_cast<std::int64_t>(file.size());
  if (!std::equal(kMagic, kMagic + std::min(kMagicBytes, file.size()), reinterpret_cast<const char*>(file.data()))) {
    refuse("is not a token file", "name a token file, or give text as text");
  }
  if (size < kTokenFileHeaderBytes) {
    refuse(fmt::format("ends after {} bytes, inside the header", size), "copy or make the file again");
  }
  // Other versions may arrange the rest in another way, so this comes before the checksum.
  const auto version = get<std::uint32_t>(file, kVersionAt);
  if (version != kTokenFileVersion && version != kMarkedTokenVersion) {
    refuse(fmt::format("is of version {}; versions {} and {} can be read", version, kTokenFileVersion,
                       kMarkedTokenVersion),
           "make the file again with this program, or read it with the one that made it");
  }
  if (checksum(file.first(kHeaderChecksumAt)) != get<std::uint64_t>(file, kHeaderChecksumAt)) {
    refuse("the header is damaged: its checksum is wrong", "copy or make the file again");
  }

  // A header with a right checksum can still be wrong: anyone can compute one.
  const std::uint64_t width = get<std::uint32_t>(file, kWidthAt), vocabulary = get<std::uint64_t>(file, kVocabularyAt),
                      tokens = get<std::uint64_t>(file, kTokensAt), documents = get<std::uint64_t>(file, kDocumentsAt),
                      targets = get<std::uint64_t>(file, kTargetsAt);
  if (width != 1 && width != 2 && width != 4) refuse(fmt::format("{} bytes per token; they can be 1, 2 or 4", width));
  const std::uint64_t most = width == 4 ? static_cast<std::uint64_t>(kMostIds) : std::uint64_t{1} << (8 * width);
  if (vocabulary < 1 || vocabulary > most) {
    refuse(fmt::format("a vocabulary of {}; with {} bytes per token it can be 1 to {}", vocabulary, width, most));
  }
  if (version == kTokenFileVersion && targets != 0) refuse("bytes 48 to 55 are not zero");
  // Bounded by the file's own size first, so that nothing below can overflow.
  const auto room = static_cast<std::uint64_t>(size - kTokenFileHeaderBytes);
  if (tokens > room / width) refuse(fmt::format("{} tokens do not fit in a file of {} bytes", tokens, size));
  if (documents > room / 8) refuse(fmt::format("{} documents do not fit in a file of {} bytes", documents, size));
  if (documents > tokens) refuse(fmt::format("{} documents, but only {} tokens", documents, tokens));
  if (version == kMarkedTokenVersion && (targets < 1 || targets > tokens))
    refuse(fmt::format("{} targets, of {} tokens", targets, tokens));

  const TokenFileHeader header{.width = static_cast<std::int64_t>(width),
                               .vocabulary = static_cast<std::int64_t>(vocabulary),
                               .tokens = static_cast<std::int64_t>(tokens),
                               .documents = static_cast<std::int64_t>(documents),
                               .payload_checksum = get<std::uint64_t>(file, kPayloadChecksumAt),
                               .targets = static_cast<std::int64_t>(targets)};
  if (header.file_bytes() != size) {
    refuse(fmt::format("has {} bytes, but its header says {}", size, header.file_bytes()),
           "copy or make the file again");
  }
  const auto require_zero = [&](std::int64_t from, std::int64_t to, const char* after) {
    for (const std::byte b : file.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)))
      if (b != std::byte{0})
        refuse(fmt::format("the padding after the {} is not zero", after), "copy or make the file again");
  };
  require_zero(header.tokens_at() + header.tokens * header.width, header.index_at(), "tokens");
  if (!header.marked()) return header;
  require_zero(header.index_at() + header.documents * 8, header.marks_at(), "document index");
  if (const auto used = header.tokens % 8; used > 0 && std::to_integer<unsigned>(file.back()) >> used != 0)
    refuse("the last byte marks tokens that are not there", "copy or make the file again");
  return header;
}

}  // namespace lockstep
