// The .idx file of a Megatron-LM indexed dataset, checked and read in place.
//
//   9 bytes   "MMIDIDX\0\0"
//   u64       version, 1
//   u8        the type of an id: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
//   u64       sequences S
//   u64       documents + 1, D
//   i32[S]    ids of each sequence
//   i64[S]    where each begins in the .bin, in bytes
//   i64[D]    the sequence with which each document begins, from 0 to S
//   i8[S]     of data of several modes only: refused
//
// All integers are little-endian. Here sequences must follow one another without gaps from the beginning of the .bin to
// its end, as Megatron-LM's builder writes them: the ids are then one row. A document may hold no sequence, and a
// sequence no id.
//
// Parsing reads the whole index once and holds nothing of it: whoever keeps this keeps the bytes.
// Failure: UserError (bad_input_file), one line with the file, what is wrong and a remedy.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};

enum class StoredId { u8, i8, i16, u16, i32, u32, i64 };
std::int64_t bytes_of(StoredId type);
std::int64_t most_ids_of(StoredId type);  // ids that it can hold, at most 2^31

class MegatronIndex {
 public:
  // `idx`: all bytes of the index; `bin_bytes`: the size of the .bin; `name`: what messages call the index.
  MegatronIndex(std::span<const std::byte> idx, std::int64_t bin_bytes, const std::string& name);

  StoredId type() const { return type_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return starts_ - 1; }
  std::pair<std::int64_t, std::int64_t> document(std::int64_t index) const;  // tokens [first, second)

 private:
  template <class Number>
  Number at(std::size_t section, std::int64_t index) const;
  std::int64_t token_of_sequence(std::int64_t sequence) const;

  std::span<const std::byte> bytes_;
  StoredId type_ = StoredId::u16;
  std::int64_t sequences_ = 0, starts_ = 0, tokens_ = 0;
  std::size_t lengths_at_ = 0, pointers_at_ = 0, documents_at_ = 0;
};

}  // namespace lockstep
