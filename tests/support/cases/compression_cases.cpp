#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/block_codes.h"
#include "kernels/row_codes.h"
#include "kernels/top_k.h"
#include "kernels/tree_sum.h"
#include "support/cases/families.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;
using Words = std::vector<std::uint32_t>;

const char* name_of_form(BlockForm form) {
  return form == BlockForm::bf16 ? "bf16" : form == BlockForm::int8 ? "int8" : "onebit";
}

// Arithmetic that the headers put in the accumulator type of S.
double in_type(DType sums, double value) { return sums == DType::f64 ? value : static_cast<float>(value); }

// One block by the header's table; `v` are numbers of the accumulator type.
Words coded(BlockForm form, DType sums, const std::vector<double>& v) {
  Words words(static_cast<std::size_t>(words_of_block(form)));
  const auto float_word = [](double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); };
  if (form == BlockForm::bf16) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      std::byte bytes[2];
      store_element(bytes, DType::bf16, v[i]);
      words[i / 2] |= static_cast<std::uint32_t>(std::to_integer<int>(bytes[0]) | std::to_integer<int>(bytes[1]) << 8)
                      << (i % 2 * 16);
    }
  } else if (form == BlockForm::int8) {
    double largest = 0;
    for (const double x : v) largest = std::isnan(x) || std::isnan(largest) ? NAN : std::max(largest, std::abs(x));
    const float scale = std::isfinite(largest) ? static_cast<float>(largest) / 127.0f : NAN;
    words[0] = float_word(scale);
    for (std::size_t i = 0; i < v.size() && scale > 0; ++i) {
      const double q = std::clamp(std::nearbyint(in_type(sums, v[i] / scale)), -127.0, 127.0);
      words[1 + i / 4] |= (static_cast<std::uint32_t>(static_cast<int>(q)) & 0xffu) << (i % 4 * 8);
    }
  } else {
    double sums_of[2][8] = {}, counts[2] = {};
    for (std::size_t i = 0; i < v.size(); ++i) {
      const bool negative = v[i] < 0;
      sums_of[negative][i % 8] += v[i];
      counts[negative] += 1;
      words[2 + i / 32] |= static_cast<std::uint32_t>(negative) << (i % 32);
    }
    for (int side = 0; side < 2; ++side)
      words[static_cast<std::size_t>(side)] = float_word(
          counts[side] > 0 ? std::accumulate(std::begin(sums_of[side]), std::end(sums_of[side]), 0.0) / counts[side]
                           : 0);
  }
  return words;
}

double decoded(BlockForm form, DType sums, const Words& words, std::size_t i) {
  if (form == BlockForm::bf16) return std::bit_cast<float>(words[i / 2] >> (i % 2 * 16) << 16);
  if (form == BlockForm::int8)
    return in_type(sums, static_cast<double>(std::bit_cast<float>(words[0])) *
                             static_cast<std::int8_t>(words[1 + i / 4] >> (i % 4 * 8)));
  return std::bit_cast<float>(words[words[2 + i / 32] >> (i % 32) & 1]);
}

Words words_at(const HostTensor& code, BlockForm form, std::int64_t block) {
  Words words;
  for (std::int64_t w = 0; w < words_of_block(form); ++w)
    words.push_back(static_cast<std::uint32_t>(static_cast<std::int32_t>(code[block * words_of_block(form) + w])));
  return words;
}
void put_words(HostTensor& code, BlockForm form, std::int64_t block, const Words& words) {
  for (std::int64_t w = 0; w < words_of_block(form); ++w)
    code.value[static_cast<std::size_t>(block * words_of_block(form) + w)] =
        static_cast<std::int32_t>(words[static_cast<std::size_t>(w)]);
}

KernelCase encode_case(DType dtype, BlockForm form, std::int64_t n, bool feedback) {
  const DType sums = accumulator_of(dtype);
  KernelCase made{.op = "encode_blocks", .shape = label({n}), .dtype = dtype};
  made.shape += fmt::format("_{}{}", name_of_form(form), feedback ? "_feedback" : "");
  made.operands = {{"code", {coded_words(form, n)}, DType::i32, Role::out},
                   {"x", {n}, dtype, Role::in, magnitudes(-8, 8)}};
  if (feedback) made.operands.push_back({"residual", {n}, sums, Role::inout, magnitudes(-9, 6)});
  made.run = [form, feedback](Tensors t, Stream& stream) {
    encode_blocks({.code = t[0], .residual = feedback ? t[2] : Tensor{}, .x = t[1], .form = form}, stream);
  };
  made.reference = [form, sums, feedback](Hosts t) {
    for (std::int64_t at = 0; at < t[1].elements(); at += kCodedBlock) {
      std::vector<double> v;
      for (std::int64_t i = at; i < std::min(t[1].elements(), at + kCodedBlock); ++i)
        v.push_back(feedback ? in_type(sums, t[1][i] + t[2][i]) : t[1][i]);
      const Words words = coded(form, sums, v);
      put_words(t[0], form, at / kCodedBlock, words);
      for (std::size_t i = 0; i < v.size() && feedback; ++i) {
        const double left = in_type(sums, v[i] - decoded(form, sums, words, i));
        t[2].value[static_cast<std::size_t>(at) + i] = std::isfinite(left) ? left : 0;
      }
    }
  };
  return made;
}

KernelCase decode_case(DType dtype, BlockForm form, std::int64_t n, int codes) {
  const DType sums = accumulator_of(dtype);
  KernelCase made{.op = "decode_blocks", .shape = label({n}), .dtype = dtype};
  made.shape += fmt::format("_{}_of_{}", name_of_form(form), codes);
  made.operands = {{"y", {n}, dtype, Role::out}};
  for (int c = 0; c < codes; ++c)
    made.operands.push_back({fmt::format("codes[{}]", c), {coded_words(form, n)}, DType::i32});
  made.prepare = [form, sums](Hosts t) {
    for (std::size_t c = 1; c < t.size(); ++c)
      for (std::int64_t at = 0; at < t[0].elements(); at += kCodedBlock) {
        std::vector<double> v;
        for (std::int64_t i = at; i < std::min(t[0].elements(), at + kCodedBlock); ++i)
          v.push_back(static_cast<float>(normal_number(c, i)));
        put_words(t[c], form, at / kCodedBlock, coded(form, sums, v));
      }
  };
  made.run = [form](Tensors t, Stream& stream) {
    const std::vector<ConstTensor> from(t.begin() + 1, t.end());
    decode_blocks({.y = t[0], .codes = from, .joins = balanced_joins(static_cast<int>(from.size())), .form = form},
                  stream);
  };
  made.reference = [form, sums](Hosts t) {
    for (std::int64_t i = 0; i < t[0].elements(); ++i) {
      Sum sum;
      for (std::size_t c = 1; c < t.size(); ++c)
        sum.add(decoded(form, sums, words_at(t[c], form, i / kCodedBlock), static_cast<std::size_t>(i % kCodedBlock)));
      t[0].set(i, sum.value, sum.size);
    }
    t[0].terms = static_cast<double>(t.size() - 1);
  };
  return made;
}

// Few magnitudes, so that many are equal and their order decides.
KernelCase select_case(DType dtype, std::int64_t n, std::int64_t k, bool feedback, bool ties) {
  const DType sums = accumulator_of(dtype);
  KernelCase made{.op = "select_top", .shape = label({n, k}), .dtype = dtype};
  made.shape += fmt::format("{}{}", feedback ? "_feedback" : "", ties ? "_ties" : "");
  const Recipe some =
      ties ? Recipe([](std::uint64_t seed, std::int64_t i) { return std::round(2 * normal_number(seed, i)) / 2; })
           : magnitudes(-8, 8);
  made.operands = {
      {"values", {k}, dtype, Role::out}, {"indices", {k}, DType::i32, Role::out}, {"x", {n}, dtype, Role::in, some}};
  if (feedback) made.operands.push_back({"residual", {n}, sums, Role::inout, some});
  constexpr std::int64_t kFirst = 7;
  made.run = [feedback](Tensors t, Stream& stream) {
    select_top({.values = t[0], .indices = t[1], .residual = feedback ? t[3] : Tensor{}, .x = t[2], .first = kFirst},
               stream);
  };
  made.reference = [feedback, sums](Hosts t) {
    std::vector<double> v;
    for (std::int64_t i = 0; i < t[2].elements(); ++i)
      v.push_back(feedback ? in_type(sums, t[2][i] + t[3][i]) : t[2][i]);
    std::vector<std::int64_t> places(v.size());
    std::iota(places.begin(), places.end(), 0);
    const auto size = [&](std::int64_t i) {
      return std::isnan(v[static_cast<std::size_t>(i)]) ? 1e300 * 1e300 : std::abs(v[static_cast<std::size_t>(i)]);
    };
    std::ranges::stable_sort(places, [&](std::int64_t a, std::int64_t b) { return size(a) > size(b); });
    places.resize(static_cast<std::size_t>(t[0].elements()));
    std::ranges::sort(places);
    std::vector<double> rest = v;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto at = static_cast<std::size_t>(places[i]);
      t[0].value[i] = std::isnan(v[at]) ? NAN : round_to(t[0].dtype, v[at]);
      t[1].value[i] = static_cast<double>(kFirst + places[i]);
      rest[at] = in_type(sums, v[at] - t[0].value[i]);
    }
    for (std::size_t i = 0; i < rest.size() && feedback; ++i) t[3].value[i] = std::isfinite(rest[i]) ? rest[i] : 0;
  };
  return made;
}

// Some places come several times.
KernelCase add_at_case(DType dtype, std::int64_t n, std::int64_t k) {
  const DType sums = accumulator_of(dtype);
  KernelCase made{.op = "add_at", .shape = label({n, k}), .dtype = dtype};
  made.operands = {{"y", {n}, dtype, Role::inout, magnitudes(-3, 3)},
                   {"indices", {k}, DType::i32, Role::in, indices(n)},
                   {"values", {k}, dtype, Role::in, magnitudes(-3, 3)}};
  made.run = [](Tensors t, Stream& stream) { add_at({.y = t[0], .indices = t[1], .values = t[2]}, stream); };
  made.reference = [sums](Hosts t) {
    for (std::int64_t i = 0; i < t[1].elements(); ++i) {
      const auto at = static_cast<std::size_t>(t[1][i]);
      t[0].value[at] = round_to(t[0].dtype, in_type(sums, t[0].value[at] + t[2][i]));
    }
  };
  return made;
}

// Places of the k of largest magnitude, ascending.
std::vector<std::size_t> largest_of(const std::vector<double>& v, std::int64_t k) {
  std::vector<std::size_t> places(v.size());
  std::iota(places.begin(), places.end(), 0);
  const auto size = [&](std::size_t i) { return std::isnan(v[i]) ? 1e300 * 1e300 : std::abs(v[i]); };
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
    return std::isnan(v[a]) != std::isnan(v[b]) ? std::isnan(v[a]) : size(a) > size(b);
  });
  places.resize(static_cast<std::size_t>(k));
  std::ranges::sort(places);
  return places;
}

// A row's words by the header's table.
Words row_coded(const RowCode& form, DType dtype, const std::vector<double>& v) {
  Words words;
  if (form.largest == 0) {
    for (std::size_t at = 0; at < v.size(); at += kCodedBlock) {
      const std::size_t count = std::min<std::size_t>(kCodedBlock, v.size() - at);
      const auto from = v.begin() + static_cast<std::ptrdiff_t>(at);
      Words block = coded(form.blocks, accumulator_of(dtype), {from, from + static_cast<std::ptrdiff_t>(count)});
      block.resize(form.blocks == BlockForm::bf16   ? (count + 1) / 2
                   : form.blocks == BlockForm::int8 ? 1 + (count + 3) / 4
                                                    : 2 + (count + 31) / 32);
      words.insert(words.end(), block.begin(), block.end());
    }
    return words;
  }
  std::vector<std::byte> values, places;
  for (const std::size_t i : largest_of(v, form.largest)) {
    std::byte value[8];
    store_element(value, dtype, v[i]);
    values.insert(values.end(), value, value + size_of(dtype));
    places.push_back(static_cast<std::byte>(i & 255));
    places.push_back(static_cast<std::byte>(i >> 8));
  }
  for (std::vector<std::byte>* bytes : {&values, &places}) {
    bytes->resize((bytes->size() + 3) / 4 * 4);
    for (std::size_t i = 0; i < bytes->size(); i += 4) {
      std::uint32_t word = 0;
      for (std::size_t b = 0; b < 4; ++b) word |= std::to_integer<std::uint32_t>((*bytes)[i + b]) << (8 * b);
      words.push_back(word);
    }
  }
  return words;
}

// What they decode to, of numbers of the type.
std::vector<double> row_decoded(const RowCode& form, DType dtype, const std::vector<double>& v) {
  std::vector<double> y(v.size());
  if (form.largest > 0) {
    for (const std::size_t i : largest_of(v, form.largest)) y[i] = v[i];
    return y;
  }
  const DType sums = accumulator_of(dtype);
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::size_t at = i / kCodedBlock * kCodedBlock, end = std::min<std::size_t>(v.size(), at + kCodedBlock);
    y[i] = decoded(form.blocks, sums,
                   coded(form.blocks, sums,
                         {v.begin() + static_cast<std::ptrdiff_t>(at), v.begin() + static_cast<std::ptrdiff_t>(end)}),
                   i % kCodedBlock);
  }
  return y;
}

std::string name_of_rows(const RowCode& form) {
  return form.largest > 0 ? fmt::format("_largest_{}", form.largest) : fmt::format("_{}", name_of_form(form.blocks));
}

std::vector<double> row_of(const HostTensor& t, std::int64_t row) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < t.shape[1]; ++i) v.push_back(t[row * t.shape[1] + i]);
  return v;
}
void put_row(HostTensor& code, std::int64_t row, const Words& words) {
  for (std::size_t w = 0; w < words.size(); ++w)
    code.value[static_cast<std::size_t>(row) * words.size() + w] = static_cast<std::int32_t>(words[w]);
}

KernelCase encode_rows_case(DType dtype, const RowCode& form, std::int64_t N, std::int64_t C, bool ties) {
  KernelCase made{.op = "encode_rows", .shape = label({N, C}), .dtype = dtype};
  made.shape += name_of_rows(form) + (ties ? "_ties" : "");
  const Recipe some =
      ties ? Recipe([](std::uint64_t seed, std::int64_t i) { return std::round(2 * normal_number(seed, i)) / 2; })
           : magnitudes(-8, 8);
  made.operands = {{"code", {N, row_words(form, C, dtype)}, DType::i32, Role::out},
                   {"x", {N, C}, dtype, Role::in, some}};
  made.run = [form](Tensors t, Stream& stream) { encode_rows({.code = t[0], .x = t[1], .form = form}, stream); };
  made.reference = [form, dtype](Hosts t) {
    for (std::int64_t row = 0; row < t[1].shape[0]; ++row)
      put_row(t[0], row, row_coded(form, dtype, row_of(t[1], row)));
  };
  return made;
}

KernelCase decode_rows_case(DType dtype, const RowCode& form, std::int64_t N, std::int64_t C) {
  KernelCase made{.op = "decode_rows", .shape = label({N, C}), .dtype = dtype};
  made.shape += name_of_rows(form);
  made.operands = {{"y", {N, C}, dtype, Role::out}, {"code", {N, row_words(form, C, dtype)}, DType::i32}};
  const auto numbers = [dtype, C](std::int64_t row) {
    std::vector<double> v;
    for (std::int64_t i = 0; i < C; ++i) v.push_back(round_to(dtype, normal_number(7, row * C + i)));
    return v;
  };
  made.prepare = [form, dtype, numbers](Hosts t) {
    for (std::int64_t row = 0; row < t[0].shape[0]; ++row) put_row(t[1], row, row_coded(form, dtype, numbers(row)));
  };
  made.run = [form](Tensors t, Stream& stream) { decode_rows({.y = t[0], .code = t[1], .form = form}, stream); };
  made.reference = [form, dtype, numbers](Hosts t) {
    for (std::int64_t row = 0; row < t[0].shape[0]; ++row) {
      const std::vector<double> y = row_decoded(form, dtype, numbers(row));
      for (std::size_t i = 0; i < y.size(); ++i)
        t[0].set(row * t[0].shape[1] + static_cast<std::int64_t>(i), y[i], std::abs(y[i]));
    }
    t[0].terms = 1;
  };
  return made;
}

}  // namespace

Cases compression_cases(DType dtype) {
  Cases cases;
  for (const BlockForm form : {BlockForm::bf16, BlockForm::int8, BlockForm::onebit}) {
    for (const std::int64_t n : {512, 1, 13, 256, 257, 20011})
      for (const bool feedback : {false, true}) cases.push_back(encode_case(dtype, form, n, feedback));
    for (const std::int64_t n : {512, 1, 300, 20011})
      for (const int codes : {1, 2, 3, 7}) cases.push_back(decode_case(dtype, form, n, codes));
    cases.push_back(unaligned(encode_case(dtype, form, 700, true)));
    cases.push_back(unaligned(decode_case(dtype, form, 700, 3)));
  }
  for (const bool feedback : {false, true})
    for (const bool ties : {false, true})
      for (const auto& [n, k] : {std::pair{1, 1}, {13, 1}, {13, 13}, {700, 7}, {20011, 201}, {40000, 30000}})
        cases.push_back(select_case(dtype, n, k, feedback, ties));
  cases.push_back(unaligned(select_case(dtype, 700, 7, true, true)));
  for (const auto& [n, k] : {std::pair{1, 1}, {13, 40}, {20011, 700}}) cases.push_back(add_at_case(dtype, n, k));
  for (const auto& [N, C] : {std::pair{1, 1}, {5, 13}, {3, 256}, {7, 258}, {130, 300}})
    for (const RowCode& form :
         {RowCode{.blocks = BlockForm::bf16}, RowCode{.blocks = BlockForm::int8}, RowCode{.blocks = BlockForm::onebit},
          RowCode{.largest = 1}, RowCode{.largest = (C + 9) / 10}, RowCode{.largest = C}}) {
      if (form.largest == 1 && C > 1 && (C + 9) / 10 == 1) continue;
      if (form.largest == C && C == 1) continue;
      cases.push_back(encode_rows_case(dtype, form, N, C, false));
      if (form.largest > 0) cases.push_back(encode_rows_case(dtype, form, N, C, true));
      cases.push_back(decode_rows_case(dtype, form, N, C));
    }
  return cases;
}

}  // namespace lockstep::tests
