// Recipes for the elements of operands: pure functions of a seed and an index, the same on every device and machine.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::tests {

// The value of element i under this seed; it is then rounded to the operand's type.
using Recipe = std::function<double(std::uint64_t seed, std::int64_t i)>;

// Uniform in (0, 1), and numbers of mean 0 and variance 1, about normal.
double uniform_number(std::uint64_t seed, std::int64_t i);
double normal_number(std::uint64_t seed, std::int64_t i);

Recipe normal(double scale = 1, double mean = 0);
// Either sign, of magnitudes spread evenly over the powers of two from 2^low to 2^high.
Recipe magnitudes(double low, double high);
Recipe constant(double value);
// Integers in [0, limit), repeated often enough that some index comes twice.
Recipe indices(std::int64_t limit);
// Indices where every `every`-th is `ignored`.
Recipe targets(std::int64_t limit, std::int64_t every, double ignored);
// first, first + step, …
Recipe positions(std::int64_t first = 0, std::int64_t step = 1);
// Exactly these.
Recipe listed(std::vector<double> values);

}  // namespace lockstep::tests
