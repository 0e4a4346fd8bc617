// Token files of other programs, written byte by byte from their published forms.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep {

template <class Number>
void put(std::string& bytes, Number value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

template <class Id>
std::string ids_of(const std::vector<std::int64_t>& ids) {
  std::string bytes;
  for (const std::int64_t id : ids) put(bytes, static_cast<Id>(id));
  return bytes;
}

// Megatron-LM: lengths of sequences, and the first sequence of each document with the number of sequences at the end.
struct MegatronText {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;  // empty: one after another
  std::vector<std::int64_t> documents;
  std::int64_t width = 2;

  std::string idx() const {
    std::string bytes = magic;
    put(bytes, version);
    put(bytes, type);
    put<std::uint64_t>(bytes, lengths.size());
    put<std::uint64_t>(bytes, documents.size());
    for (const std::int32_t length : lengths) put(bytes, length);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      put<std::int64_t>(bytes, pointers.empty() ? at : pointers[i]);
      at += lengths[i] * width;
    }
    for (const std::int64_t document : documents) put(bytes, document);
    return bytes;
  }
};

// llm.c: 256 words of 32 bits, of which three say what follows.
inline std::string llmc_bytes(std::uint32_t magic, std::uint32_t version, std::uint32_t tokens,
                              const std::string& ids) {
  std::string bytes;
  for (const std::uint32_t word : {magic, version, tokens}) put(bytes, word);
  bytes.resize(1024, '\0');
  return bytes + ids;
}

}  // namespace lockstep
