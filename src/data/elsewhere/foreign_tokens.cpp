#include "data/elsewhere/foreign_tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"

namespace lockstep {

namespace {

// Returns the position of the first id that is not in the vocabulary, or -1.
template <class Id>
std::int64_t widen_ids(const std::byte* from, std::int64_t vocabulary, std::span<std::int32_t> to) {
  bool fine = true;
  for (std::size_t i = 0; i < to.size(); ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    to[i] = static_cast<std::int32_t>(id);
    fine &= static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(vocabulary);  // a negative one is far beyond
  }
  if (fine) return -1;
  for (std::size_t i = 0;; ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    if (static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(vocabulary)) return static_cast<std::int64_t>(i);
  }
}

template <class Call>
auto with_id(StoredId type, Call call) {
  switch (type) {
    case StoredId::u8:
      return call(std::uint8_t{});
    case StoredId::i8:
      return call(std::int8_t{});
    case StoredId::i16:
      return call(std::int16_t{});
    case StoredId::u16:
      return call(std::uint16_t{});
    case StoredId::i32:
      return call(std::int32_t{});
    case StoredId::u32:
      return call(std::uint32_t{});
    default:
      return call(std::int64_t{});
  }
}

constexpr std::size_t kLookedAtPlaces = 1024, kLookedAtBytes = 4096;

}  // namespace

ForeignTokens::ForeignTokens(const std::filesystem::path& path, std::string_view form, StoredId type, std::size_t begin,
                             std::optional<std::uint64_t> tokens, std::int64_t vocabulary)
    : file_(path), name_(path.string()), form_(form), type_(type), begin_(begin) {
  const auto refuse_it = [this](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name_, problem), remedy);
  };
  const auto width = static_cast<std::size_t>(bytes_of(type));
  if (file_.bytes().size() < begin) refuse_it("ends inside its header", "copy or make the file again");
  const std::size_t room = file_.bytes().size() - begin;
  if (room % width != 0)
    refuse_it(fmt::format("has {} bytes of ids, which is no multiple of {}", room, width),
              tokens ? "copy or make the file again" : "copy the file again, or name the type that it has");
  if (tokens && *tokens != room / width)
    refuse_it(fmt::format("has {} ids, but its header says {}", room / width, *tokens), "copy or make the file again");
  tokens_ = static_cast<std::int64_t>(room / width);
  vocabulary_ = std::min(vocabulary, most_ids_of(type));
  seal();
}

ForeignTokens::ForeignTokens(const std::filesystem::path& bin, const std::filesystem::path& idx,
                             std::int64_t vocabulary)
    : file_(bin),
      index_file_(std::make_unique<MappedFile>(idx)),
      index_(std::in_place, index_file_->bytes(), static_cast<std::int64_t>(file_.bytes().size()), idx.string()),
      name_(bin.string()),
      form_("a Megatron-LM indexed dataset"),
      type_(index_->type()),
      tokens_(index_->tokens()),
      vocabulary_(std::min(vocabulary, most_ids_of(type_))) {
  seal();
}

void ForeignTokens::seal() {
  const std::span<const std::byte> ids = file_.bytes().subspan(begin_);
  Checksum sum;
  const std::array<std::uint64_t, 2> identity{static_cast<std::uint64_t>(type_), ids.size()};
  sum.update(std::as_bytes(std::span(identity)));
  if (index_file_) sum.update(index_file_->bytes());
  const std::size_t blocks = ids.size() / kLookedAtBytes + 1, places = std::min(blocks, kLookedAtPlaces);
  for (std::size_t i = 0; i < places; ++i) {  // the last block is one of them
    const std::size_t block = places == 1 ? 0 : i * (blocks - 1) / (places - 1);
    sum.update(ids.subspan(block * kLookedAtBytes, std::min(kLookedAtBytes, ids.size() - block * kLookedAtBytes)));
  }
  fingerprint_ = sum.value();
}

void ForeignTokens::read(std::int64_t first, std::span<std::int32_t> to) const {
  const auto count = static_cast<std::int64_t>(to.size());
  LOCKSTEP_CHECK(first >= 0 && first <= tokens() && count <= tokens() - first, "{} tokens from {} on, of {}", count,
                 first, tokens());
  with_id(type_, [&](auto kind) {
    using Id = decltype(kind);
    const std::byte* from = file_.bytes().data() + begin_ + static_cast<std::size_t>(first) * sizeof(Id);
    const std::int64_t bad = widen_ids<Id>(from, vocabulary_, to);
    if (bad < 0) return;
    Id id;
    std::memcpy(&id, from + static_cast<std::size_t>(bad) * sizeof id, sizeof id);
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: token {} has id {}, but the vocabulary is {}", name_, first + bad,
                                static_cast<std::int64_t>(id), vocabulary_),
                    "use a model with the tokenizer's vocabulary, or check the type of the ids");
  });
}

std::pair<std::int64_t, std::int64_t> ForeignTokens::document(std::int64_t index) const {
  LOCKSTEP_CHECK(index_, "{} has no documents", name_);
  return index_->document(index);
}

void ForeignTokens::verify() const {
  std::vector<std::int32_t> piece(1 << 16);
  for (std::int64_t at = 0; at < tokens(); at += static_cast<std::int64_t>(piece.size())) {
    const auto left = static_cast<std::size_t>(tokens() - at);
    read(at, std::span(piece).first(std::min(piece.size(), left)));
  }
}

}  // namespace lockstep
