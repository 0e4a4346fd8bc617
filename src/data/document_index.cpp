#include "data/document_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "indexes are little-endian and read in place");

constexpr std::string_view kIndexMagic = "LSDOCIDX";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kDocumentVersionAt = 8, kIndexReservedAt = 12,
                      kIndexHeaderChecksumAt = kDocumentIndexHeaderBytes - 8;
// Of the fields, in their order; then two counts that were once zeros, and zeros up to the checksum.
constexpr std::size_t kFieldsAt = 16, kCountsAt = 80, kFieldsEnd = 96;

template <class T>
T get(std::span<const std::byte> bytes, std::int64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

[[noreturn]] void refuse_index(const std::string& name, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name, problem),
                  "remove the file: it is made again from the data");
}

}  // namespace

std::array<std::byte, kDocumentIndexHeaderBytes> encode(const DocumentIndexHeader& h) {
  std::array<std::byte, kDocumentIndexHeaderBytes> bytes{};
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  std::memcpy(bytes.data(), kIndexMagic.data(), kIndexMagic.size());
  put(kDocumentVersionAt, kVersion);
  std::size_t at = kFieldsAt;
  for (const std::int64_t field :
       {static_cast<std::int64_t>(h.identity), h.T, h.source_tokens, h.training_samples, h.evaluation_samples, h.pieces,
        h.truncated, static_cast<std::int64_t>(h.payload_checksum), h.shortened, h.left_out}) {
    put(at, field);
    at += 8;
  }
  LOCKSTEP_CHECK(at == kFieldsEnd, "fields end at {}", at);
  put(kIndexHeaderChecksumAt, checksum(std::span(bytes).first(kIndexHeaderChecksumAt)));
  return bytes;
}

DocumentIndexHeader parse_document_index_header(std::span<const std::byte> file, const std::string& name) {
  const std::size_t compared = std::min(kIndexMagic.size(), file.size());
  if (file.empty() || std::memcmp(file.data(), kIndexMagic.data(), compared) != 0)
    refuse_index(name, "is not a document index");
  if (std::ssize(file) < kDocumentIndexHeaderBytes)
    refuse_index(name, fmt::format("ends after {} bytes, inside the header", file.size()));
  if (const auto version = get<std::uint32_t>(file, kDocumentVersionAt); version != kVersion)
    refuse_index(name, fmt::format("is of version {}; version {} can be read", version, kVersion));
  if (checksum(file.first(kIndexHeaderChecksumAt)) != get<std::uint64_t>(file, kIndexHeaderChecksumAt))
    refuse_index(name, "the header is damaged: its checksum is wrong");
  if (get<std::uint32_t>(file, kIndexReservedAt) != 0 ||
      std::ranges::any_of(file.subspan(kFieldsEnd, kIndexHeaderChecksumAt - kFieldsEnd),
                          [](std::byte b) { return b != std::byte{0}; }))
    refuse_index(name, "bytes 12 to 15 and 96 to 119 are not all zero");

  DocumentIndexHeader h{.identity = get<std::uint64_t>(file, kFieldsAt),
                        .payload_checksum = get<std::uint64_t>(file, kCountsAt - 8),
                        .shortened = get<std::int64_t>(file, kCountsAt),
                        .left_out = get<std::int64_t>(file, kCountsAt + 8)};
  std::int64_t at = kFieldsAt + 8;
  // Each count is bounded by the file's size before it is multiplied.
  const std::int64_t most = std::ssize(file);
  for (const auto& [field, what, bound] :
       {std::tuple(&h.T, "T", std::int64_t{1} << 31), std::tuple(&h.source_tokens, "tokens", std::int64_t{1} << 62),
        std::tuple(&h.training_samples, "samples", most),
        std::tuple(&h.evaluation_samples, "samples for evaluation", most), std::tuple(&h.pieces, "pieces", most),
        std::tuple(&h.truncated, "truncated tokens", std::int64_t{1} << 62)}) {
    *field = get<std::int64_t>(file, at);
    if (*field < 0 || *field > bound)
      refuse_index(
          name, fmt::format("{} {} do not fit in a file of {} bytes", static_cast<std::uint64_t>(*field), what, most));
    at += 8;
  }
  if (h.shortened < 0 || h.left_out < 0 || h.shortened > h.truncated || h.left_out > h.truncated)
    refuse_index(name, "has more truncated documents than tokens of them");
  if (h.T < 1 || h.training_samples < 1) refuse_index(name, "has no samples");
  if (h.file_bytes() != most)
    refuse_index(name, fmt::format("has {} bytes, but its header says {}", most, h.file_bytes()));
  return h;
}

DocumentIndex::DocumentIndex(std::unique_ptr<MappedFile> file, std::string name, const Expected& expected)
    : map_(std::move(file)), bytes_(map_->bytes()), name_(std::move(name)) {
  check(expected);
}

DocumentIndex::DocumentIndex(std::vector<std::byte> bytes, std::string name, const Expected& expected)
    : own_(std::move(bytes)), bytes_(own_), name_(std::move(name)) {
  check(expected);
}

void DocumentIndex::check(const Expected& expected) {
  header_ = parse_document_index_header(bytes_, name_);
  if (header_.identity != expected.identity || header_.T != expected.T ||
      header_.source_tokens != expected.source_tokens)
    refuse_index(name_, "is of other data or of other settings");
  if (checksum(bytes_.subspan(static_cast<std::size_t>(kDocumentIndexHeaderBytes))) != header_.payload_checksum)
    refuse_index(name_, "is damaged: the checksum of its samples is wrong");
  if (first_piece(0) != 0 || first_piece(samples()) != header_.pieces)
    refuse_index(name_, "its samples do not have all pieces");
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(T()) + 1);
  for (std::int64_t s = 0; s < samples(); ++s) {
    const std::int64_t begin = first_piece(s), end = first_piece(s + 1);
    if (begin >= end || end > header_.pieces) refuse_index(name_, fmt::format("sample {} has no pieces", s));
    std::int64_t room = T();
    for (std::int64_t i = begin; i < end; ++i) {
      const Piece piece = piece_at(i);
      const std::int64_t needed = piece.count + (piece.continues ? 1 : 0);
      if (piece.count < 1 || piece.count > room || piece.first < 0 || piece.first > header_.source_tokens - needed)
        refuse_index(name_, fmt::format("piece {} of sample {} is {} tokens from {} on, of {} with room for {}",
                                        i - begin, s, piece.count, piece.first, header_.source_tokens, room));
      room -= piece.count;
      if (s < training_samples()) ++lengths[static_cast<std::size_t>(piece.count)];
    }
    tokens_ += T() - room;
  }
  pairs_ = std::make_shared<const DocumentPairs>(training_samples(), T(), lengths);
}

double DocumentIndex::filled() const {
  return static_cast<double>(tokens_) / (static_cast<double>(samples()) * static_cast<double>(T()));
}

// As the file says: negative where it says more than there can be.
std::int64_t DocumentIndex::first_piece(std::int64_t sample) const {
  return get<std::int64_t>(bytes_, header_.firsts_at() + sample * 8);
}

DocumentIndex::Piece DocumentIndex::piece_at(std::int64_t index) const {
  const auto length = get<std::uint32_t>(bytes_, header_.lengths_at() + index * 4);
  return {.first = get<std::int64_t>(bytes_, header_.tokens_at() + index * 8),
          .count = static_cast<std::int64_t>(length & ~kPieceContinues),
          .continues = (length & kPieceContinues) != 0};
}

}  // namespace lockstep
