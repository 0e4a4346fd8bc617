#include "data/elsewhere/megatron_index.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr std::size_t kIndexVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kStartsAt = 26, kSectionsAt = 34;

struct Refusal {
  const std::string& name;
  [[noreturn]] void operator()(const std::string& problem,
                               const std::string& remedy = "copy or make the dataset again") const {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name, problem), remedy);
  }
};

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

StoredId type_of_code(int code, const Refusal& refuse) {
  switch (code) {
    case 1:
      return StoredId::u8;
    case 2:
      return StoredId::i8;
    case 3:
      return StoredId::i16;
    case 4:
      return StoredId::i32;
    case 5:
      return StoredId::i64;
    case 8:
      return StoredId::u16;
    default:
      refuse(code == 6 || code == 7 ? fmt::format("holds floating-point numbers (type {}), not token ids", code)
                                    : fmt::format("has ids of type {}, which is not known", code),
             "name a dataset of token ids");
  }
}

}  // namespace

std::int64_t bytes_of(StoredId type) {
  return type == StoredId::u8 || type == StoredId::i8     ? 1
         : type == StoredId::i16 || type == StoredId::u16 ? 2
         : type == StoredId::i64                          ? 8
                                                          : 4;
}

std::int64_t most_ids_of(StoredId type) {
  return type == StoredId::u8    ? 1 << 8
         : type == StoredId::i8  ? 1 << 7
         : type == StoredId::i16 ? 1 << 15
         : type == StoredId::u16 ? 1 << 16
                                 : std::int64_t{1} << 31;
}

MegatronIndex::MegatronIndex(std::span<const std::byte> idx, std::int64_t bin_bytes, const std::string& name)
    : bytes_(idx) {
  const Refusal refuse{name};
  const std::size_t begins = std::min(kMegatronMagic.size(), idx.size());
  if (idx.empty() || std::memcmp(idx.data(), kMegatronMagic.data(), begins) != 0)
    refuse("is not the index of a Megatron-LM dataset", "name the .bin or .idx file that Megatron-LM wrote");
  if (idx.size() < kSectionsAt) refuse(fmt::format("ends after {} bytes, inside the header", idx.size()));
  if (const auto version = number_at<std::uint64_t>(idx, kIndexVersionAt); version != 1)
    refuse(fmt::format("is of version {}; version 1 can be read", version), "make the dataset again with Megatron-LM");
  type_ = type_of_code(number_at<std::uint8_t>(idx, kTypeAt), refuse);
  const auto sequences = number_at<std::uint64_t>(idx, kSequencesAt), starts = number_at<std::uint64_t>(idx, kStartsAt);
  // Bounded by the file's own size first, so that nothing below can overflow.
  const std::uint64_t room = idx.size() - kSectionsAt;
  if (sequences > room / 12 || starts > room / 8 || sequences * 12 + starts * 8 > room)
    refuse(fmt::format("has {} bytes, too few for its {} sequences and {} documents", idx.size(), sequences, starts));
  const std::uint64_t modes = room - sequences * 12 - starts * 8;
  if (modes == sequences && sequences > 0)
    refuse("is of data of several modes, which cannot be read", "make a dataset of text alone");
  if (modes != 0) refuse(fmt::format("has {} bytes after its last section", modes));
  if (starts == 0) refuse("has no document index");
  sequences_ = static_cast<std::int64_t>(sequences);
  starts_ = static_cast<std::int64_t>(starts);
  lengths_at_ = kSectionsAt;
  pointers_at_ = lengths_at_ + static_cast<std::size_t>(sequences) * 4;
  documents_at_ = pointers_at_ + static_cast<std::size_t>(sequences) * 8;

  const std::int64_t width = bytes_of(type_);
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const auto length = at<std::int32_t>(lengths_at_, i);
    const auto pointer = at<std::int64_t>(pointers_at_, i);
    if (length < 0) refuse(fmt::format("sequence {} has {} ids", i, length));
    if (pointer != place)
      refuse(fmt::format("sequence {} begins at byte {} of the .bin, not at {}, where the one before ends", i, pointer,
                         place),
             "make the dataset again with Megatron-LM, which writes them one after another");
    if (length > (bin_bytes - place) / width)
      refuse(fmt::format("sequence {} ends after the .bin, which has {} bytes", i, bin_bytes));
    place += length * width;
  }
  if (place != bin_bytes) refuse(fmt::format("is of {} bytes of ids, and the .bin has {}", place, bin_bytes));
  tokens_ = place / width;
  for (std::int64_t i = 0; i < starts_; ++i) {
    const auto start = at<std::int64_t>(documents_at_, i), before = i == 0 ? 0 : at<std::int64_t>(documents_at_, i - 1);
    if (start < before || start > sequences_ || (i == 0 && start != 0) || (i + 1 == starts_ && start != sequences_))
      refuse(fmt::format("document {} begins with sequence {} of {}", i, start, sequences_));
  }
}

template <class Number>
Number MegatronIndex::at(std::size_t section, std::int64_t index) const {
  return number_at<Number>(bytes_, section + static_cast<std::size_t>(index) * sizeof(Number));
}

std::int64_t MegatronIndex::token_of_sequence(std::int64_t sequence) const {
  return sequence == sequences_ ? tokens_ : at<std::int64_t>(pointers_at_, sequence) / bytes_of(type_);
}

std::pair<std::int64_t, std::int64_t> MegatronIndex::document(std::int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index < documents(), "document {} of {}", index, documents());
  return {token_of_sequence(at<std::int64_t>(documents_at_, index)),
          token_of_sequence(at<std::int64_t>(documents_at_, index + 1))};
}

}  // namespace lockstep
