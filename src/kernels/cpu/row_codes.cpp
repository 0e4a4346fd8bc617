#include "kernels/row_codes.h"

#include <span>

#include "kernels/cpu/block_code.h"
#include "kernels/cpu/rows.h"

namespace lockstep::cpu {

namespace {

// Of the row's last block as many words as it needs are in the code; the others would be zeros.
template <class S>
void encode_in_blocks(BlockForm form, std::span<const S> x, std::span<CodeWord> code) {
  using A = AccumulatorOf<S>;
  CodeWord whole[words_of_block(BlockForm::bf16)];
  for (std::size_t at = 0; at < x.size(); at += kBlock) {
    const std::size_t count = std::min<std::size_t>(kBlock, x.size() - at);
    Block<A> v{};
    for (std::size_t i = 0; i < count; ++i) v[i] = convert<S, A>(x[at + i]);
    encode(form, v, static_cast<std::int64_t>(count), whole);
    const std::size_t words = std::min<std::size_t>(code.size(), words_of_block(form));
    std::copy_n(whole, words, code.begin());
    code = code.subspan(words);
  }
}

template <class S>
void decode_from_blocks(BlockForm form, std::span<const CodeWord> code, std::span<S> y) {
  using A = AccumulatorOf<S>;
  for (std::size_t at = 0; at < y.size(); at += kBlock) {
    CodeWord whole[words_of_block(BlockForm::bf16)] = {};
    const std::size_t words = std::min<std::size_t>(code.size(), words_of_block(form));
    std::copy_n(code.begin(), words, whole);
    code = code.subspan(words);
    Block<A> v;
    decode(form, whole, v);
    for (std::size_t i = 0; i < std::min<std::size_t>(kBlock, y.size() - at); ++i) y[at + i] = convert<A, S>(v[i]);
  }
}

// Bits of a float without its sign are in the order of magnitudes, and those of a NaN come last.
template <class S>
std::uint64_t row_magnitude_of(S v) {
  if constexpr (std::is_same_v<S, double>) return std::bit_cast<std::uint64_t>(v) << 1;
  return std::bit_cast<std::uint32_t>(convert<S, float>(v)) << 1;
}

template <class S>
struct Largest {
  std::int64_t k;
  char* values;
  char* places;
  Largest(std::int64_t k, CodeWord* code)
      : k(k),
        values(reinterpret_cast<char*>(code)),
        places(reinterpret_cast<char*>(code + ceil_div(k * static_cast<std::int64_t>(sizeof(S)), 4))) {}
  void put(std::int64_t i, S value, std::uint16_t place) const {
    std::memcpy(values + i * static_cast<std::int64_t>(sizeof(S)), &value, sizeof(S));
    std::memcpy(places + i * 2, &place, 2);
  }
  std::pair<S, std::uint16_t> at(std::int64_t i) const {
    S value;
    std::uint16_t place = 0;
    std::memcpy(&value, values + i * static_cast<std::int64_t>(sizeof(S)), sizeof(S));
    std::memcpy(&place, places + i * 2, 2);
    return {value, place};
  }
};

// `room` for a magnitude of each element.
template <class S>
void encode_largest(std::int64_t k, std::span<const S> x, std::span<CodeWord> code, std::uint64_t* room) {
  std::ranges::transform(x, room, row_magnitude_of<S>);
  const std::span all(room, x.size());
  std::ranges::nth_element(all, all.begin() + (k - 1), std::greater());
  const std::uint64_t least = all[static_cast<std::size_t>(k - 1)];
  std::int64_t equals =
      k - std::ranges::count_if(all.first(static_cast<std::size_t>(k)), [&](std::uint64_t m) { return m > least; });
  std::ranges::fill(code, 0);
  const Largest<S> chosen(k, code.data());
  std::int64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t m = row_magnitude_of(x[i]);
    if (m < least || (m == least && equals == 0)) continue;
    equals -= m == least;
    chosen.put(count++, x[i], static_cast<std::uint16_t>(i));
  }
}

template <class S>
void decode_largest(std::int64_t k, std::span<const CodeWord> code, std::span<S> y) {
  std::ranges::fill(y, S(0.0f));
  const Largest<S> chosen(k, const_cast<CodeWord*>(code.data()));
  for (std::int64_t i = 0; i < k; ++i) {
    const auto [value, place] = chosen.at(i);
    LOCKSTEP_CHECK(place < y.size(), "decode_rows: place {} of {} elements", place, y.size());
    y[place] = value;
  }
}

}  // namespace

void encode_rows(const EncodeRowsArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const auto C = static_cast<std::size_t>(a.x.dim(1)), words = static_cast<std::size_t>(a.code.dim(1));
    Stream& here = Stream::of(stream);
    each_row(here, a.x.dim(0), a.x.dim(1), [&](std::int64_t row, int worker) {
      const std::span x(a.x.data<S>() + row * a.x.dim(1), C);
      const std::span code(a.code.data<CodeWord>() + row * a.code.dim(1), words);
      if (a.form.largest > 0)
        encode_largest<S>(a.form.largest, x, code, static_cast<std::uint64_t*>(here.scratch(worker)));
      else
        encode_in_blocks<S>(a.form.blocks, x, code);
    });
  });
}

void decode_rows(const DecodeRowsArgs& a, lockstep::Stream& stream) {
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const auto C = static_cast<std::size_t>(a.y.dim(1)), words = static_cast<std::size_t>(a.code.dim(1));
    each_row(Stream::of(stream), a.y.dim(0), a.y.dim(1), [&](std::int64_t row, int) {
      const std::span y(a.y.data<S>() + row * a.y.dim(1), C);
      const std::span code(a.code.data<CodeWord>() + row * a.code.dim(1), words);
      if (a.form.largest > 0)
        decode_largest<S>(a.form.largest, code, y);
      else
        decode_from_blocks<S>(a.form.blocks, code, y);
    });
  });
}

}  // namespace lockstep::cpu
