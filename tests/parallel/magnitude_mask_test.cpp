// The mask of a matrix is the one that a sort finds, also where many magnitudes are equal, whole and split over ranks
// in either direction, some of them holding what others hold too.
#include "parallel/magnitude_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/serial_sparsity.h"

namespace lockstep::tests {
namespace {

struct Matrix {
  LogicalTensor tensor;
  std::vector<double> values;
  std::vector<bool> masked;
};

// Few magnitudes, some of them zero, and some elements masked before.
Matrix tied_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  Matrix m{{"layers.0.matrix", {rows, columns}}, {}, {}};
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    m.values.push_back(static_cast<double>(random() % 7) / 4 - 0.75);
    m.masked.push_back(false);
  }
  return m;
}

// A rank's part: rows or columns [first, first + count), after a gap, as float or double.
struct Held {
  UnitLayout layout{"block"};
  std::vector<double> doubles;
  std::vector<float> floats;
};

Held part_of(const Matrix& m, bool by_rows, std::int64_t first, std::int64_t count, bool counted) {
  const std::int64_t rows = m.tensor.shape[0], columns = m.tensor.shape[1];
  const std::int64_t here_rows = by_rows ? count : rows, here_columns = by_rows ? columns : count;
  const std::int64_t begin = by_rows ? first * columns : first;
  Run run{.here = {0, here_columns, here_columns, here_rows}, .there = {begin, here_columns, columns, here_rows}};
  ParameterPiece piece{m.tensor, std::vector<Run>{joined(run)}, counted};
  Held held;
  held.layout.add({.shape = {300}, .pieces = {{"norm", {300}}}});
  const int p = held.layout.add({.shape = {here_rows, here_columns}, .pieces = {piece}});
  held.doubles.assign(static_cast<std::size_t>(held.layout.owned()), 0);
  for (std::int64_t r = 0; r < here_rows; ++r)
    for (std::int64_t c = 0; c < here_columns; ++c) {
      const auto there = static_cast<std::size_t>(begin + r * columns + c);
      held.doubles[static_cast<std::size_t>(held.layout.offset(p) + r * here_columns + c)] =
          m.masked[there] ? std::numeric_limits<double>::quiet_NaN() : m.values[there];
    }
  held.floats.assign(held.doubles.begin(), held.doubles.end());
  return held;
}

// By element of this rank's part of the matrix, whether it stays; all of the vector does, and no padding.
std::vector<bool> stays(const Held& held, const SparsitySpec& sparsity, std::int64_t steps, bool inputs_first,
                        bool in_floats, Communicator& ranks) {
  const MagnitudeMask mask{.sparsity = sparsity, .steps = steps, .inputs_first = inputs_first};
  const std::int64_t n = held.layout.owned();
  const MaskWords words =
      in_floats ? mask.find(held.layout, ConstTensor(held.floats.data(), DType::f32, Device::cpu, {n}), ranks)
                : mask.find(held.layout, ConstTensor(held.doubles.data(), DType::f64, Device::cpu, {n}), ranks);
  const auto bit = [&](std::int64_t i) { return (words[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1) != 0; };
  std::vector<bool> matrix;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t of_matrix = i - held.layout.offset(1), of_vector = i - held.layout.offset(0);
    if (of_matrix >= 0 && of_matrix < held.layout.parameters()[1].elements())
      matrix.push_back(bit(i));
    else
      EXPECT_EQ(bit(i), of_vector >= 0 && of_vector < 300) << i;
  }
  return matrix;
}

TEST(MagnitudeMask, IsTheOneThatASortFinds) {
  for (const bool inputs_first : {false, true})
    for (const SparsityKind kind : {SparsityKind::unstructured, SparsityKind::two_of_four})
      for (const int ranks : {1, 2, 3})
        for (const bool by_rows : {false, true})
          for (const bool in_floats : {false, true}) {
            const SparsitySpec sparsity{.kind = kind, .share = 0.9, .begin = 0, .end = 5, .every = 1};
            Matrix m = tied_matrix(24, 36, 7);
            for (std::int64_t step = 1; step <= 5; ++step) {
              const std::vector<bool> want = plain_mask(m.tensor, m.values, m.masked, kind == SparsityKind::two_of_four,
                                                        inputs_first, plain_share(sparsity, step));
              run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
                // The last rank of three has what the one before it has.
                const int parts = std::min(ranks, 2), own = std::min(group->rank(), 1);
                const std::int64_t all = by_rows ? 24 : 36, first = own == 0 ? 0 : 8,
                                   count = parts == 1 ? all
                                           : own == 0 ? 8
                                                      : all - 8;
                const Held held = part_of(m, by_rows, first, count, group->rank() < 2);
                const std::vector<bool> mine = stays(held, sparsity, step, inputs_first, in_floats, *group);
                std::size_t i = 0, wrong = 0;
                for (std::int64_t r = by_rows ? first : 0; r < (by_rows ? first + count : 24); ++r)
                  for (std::int64_t c = by_rows ? 0 : first; c < (by_rows ? 36 : first + count); ++c)
                    wrong += mine.at(i++) == want[static_cast<std::size_t>(r * 36 + c)];
                EXPECT_EQ(wrong, 0U) << name_of(kind) << ", inputs first " << inputs_first << ", ranks " << ranks
                                     << ", by rows " << by_rows << ", floats " << in_floats << ", step " << step;
              });
              m.masked = want;
              for (std::size_t i = 0; i < want.size(); ++i)
                if (want[i]) m.values[i] = 0;
            }
          }
}

}  // namespace
}  // namespace lockstep::tests
