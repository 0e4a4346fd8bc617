// Elements that a mask keeps (pack, unpack, keep), and rows of a table that are listed (gather_rows, scatter_rows).
#include "kernels/mask.h"

#include <cmath>
#include <tuple>

#include "kernels/table_rows.h"
#include "support/cases/families.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

constexpr double kRest = -3;

// Words that a double holds: of either sign, so that their highest bits are set too. Bits past the end mean nothing,
// whatever they are.
enum class Bits { some, none, all };
double word_of_bits(Bits bits, std::int64_t word) {
  if (bits != Bits::some) return bits == Bits::all ? -1 : 0;
  const double size = std::floor(std::ldexp(uniform_number(41, word), word % 5 == 0 ? 20 : 52));
  return word % 2 == 0 ? -size : size;
}
bool is_kept(Bits bits, std::int64_t i) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(word_of_bits(bits, i / 64))) >> (i % 64) & 1;
}
std::int64_t kept_of(Bits bits, std::int64_t n) {
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < n; ++i) kept += is_kept(bits, i);
  return kept;
}

Operand mask_operand(Bits bits, std::int64_t n) {
  return {"mask", {mask_words(n)}, DType::i64, Role::in, [bits](std::uint64_t, std::int64_t word) {
            return word_of_bits(bits, word);
          }};
}

std::string name_of_bits(Bits bits) { return bits == Bits::some ? "" : bits == Bits::all ? "_all" : "_none"; }

KernelCase pack_case(DType dtype, Bits bits, std::int64_t n) {
  KernelCase made{.op = "pack", .shape = label({n}) + name_of_bits(bits), .dtype = dtype};
  made.operands = {{"packed", {kept_of(bits, n)}, dtype, Role::out}, {"dense", {n}, dtype}, mask_operand(bits, n)};
  made.run = [](Tensors t, Stream& stream) { pack({.packed = t[0], .dense = t[1], .mask = t[2]}, stream); };
  made.reference = [bits](Hosts t) {
    for (std::int64_t i = 0, j = 0; i < t[1].elements(); ++i)
      if (is_kept(bits, i)) t[0].value[static_cast<std::size_t>(j++)] = t[1][i];
  };
  return made;
}

KernelCase unpack_case(DType dtype, Bits bits, std::int64_t n) {
  KernelCase made{.op = "unpack", .shape = label({n}) + name_of_bits(bits), .dtype = dtype};
  made.operands = {{"dense", {n}, dtype, Role::out}, {"packed", {kept_of(bits, n)}, dtype}, mask_operand(bits, n)};
  made.run = [](Tensors t, Stream& stream) {
    unpack({.dense = t[0], .packed = t[1], .mask = t[2], .rest = kRest}, stream);
  };
  made.reference = [bits](Hosts t) {
    for (std::int64_t i = 0, j = 0; i < t[0].elements(); ++i)
      t[0].value[static_cast<std::size_t>(i)] = is_kept(bits, i) ? t[1][j++] : kRest;
  };
  return made;
}

KernelCase keep_case(DType dtype, Bits bits, std::int64_t n) {
  KernelCase made{.op = "keep", .shape = label({n}) + name_of_bits(bits), .dtype = dtype};
  made.operands = {{"dense", {n}, dtype, Role::inout}, mask_operand(bits, n)};
  made.run = [](Tensors t, Stream& stream) { keep({.dense = t[0], .mask = t[1], .rest = kRest}, stream); };
  made.reference = [bits](Hosts t) {
    for (std::int64_t i = 0; i < t[0].elements(); ++i)
      if (!is_kept(bits, i)) t[0].value[static_cast<std::size_t>(i)] = kRest;
  };
  return made;
}

// Every `apart`-th row, the last first.
Recipe spread_rows(std::int64_t count, std::int64_t apart) {
  return [=](std::uint64_t, std::int64_t i) { return static_cast<double>((count - 1 - i) * apart); };
}

KernelCase rows_case(DType dtype, std::int64_t V, std::int64_t C, std::int64_t apart, bool gathers) {
  const std::int64_t n = (V + apart - 1) / apart;
  KernelCase made{.op = gathers ? "gather_rows" : "scatter_rows", .shape = label({V, C, n}), .dtype = dtype};
  made.operands = {{gathers ? "y" : "x", {n, C}, dtype, gathers ? Role::out : Role::in},
                   {"table", {V, C}, dtype, gathers ? Role::in : Role::inout},
                   {"rows", {n}, DType::i32, Role::in, spread_rows(n, apart)}};
  made.run = [gathers](Tensors t, Stream& stream) {
    if (gathers)
      gather_rows({.y = t[0], .table = t[1], .rows = t[2]}, stream);
    else
      scatter_rows({.table = t[1], .x = t[0], .rows = t[2]}, stream);
  };
  made.reference = [gathers, C](Hosts t) {
    for (std::int64_t i = 0; i < t[2].elements(); ++i)
      for (std::int64_t c = 0; c < C; ++c) {
        const auto here = static_cast<std::size_t>(i * C + c),
                   there = static_cast<std::size_t>(static_cast<std::int64_t>(t[2][i]) * C + c);
        if (gathers)
          t[0].value[here] = t[1].value[there];
        else
          t[1].value[there] = t[0].value[here];
      }
  };
  return made;
}

}  // namespace

Cases mask_cases(DType dtype) {
  Cases cases;
  for (const std::int64_t n : {1, 63, 64, 65, 700, 16384, 16385, 40001})
    for (const Bits bits : {Bits::some, Bits::all}) {
      if (kept_of(bits, n) == 0) continue;
      cases.push_back(pack_case(dtype, bits, n));
      cases.push_back(unpack_case(dtype, bits, n));
      cases.push_back(keep_case(dtype, bits, n));
    }
  cases.push_back(keep_case(dtype, Bits::none, 700));
  cases.push_back(unaligned(pack_case(dtype, Bits::some, 700)));
  cases.push_back(unaligned(unpack_case(dtype, Bits::some, 700)));
  for (const auto& [V, C, apart] :
       {std::tuple{1, 1, 1}, std::tuple{300, 8, 1}, std::tuple{301, 13, 3}, std::tuple{40, 1030, 7}})
    for (const bool gathers : {true, false}) cases.push_back(rows_case(dtype, V, C, apart, gathers));
  return cases;
}

}  // namespace lockstep::tests
